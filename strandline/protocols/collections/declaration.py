"""Collections that a Python program declares, beside or in place of those in the settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from strandline.protocols.collections.config import Collection, CollectionsConfig, RateLimit
from strandline.protocols.collections.config_check import BadCollections
from strandline.protocols.collections.config_sources import Reader
from strandline.protocols.collections.roles import Roles
from strandline.signing.revocations import Revocations


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """Collections whose paths begin with a name of their own."""

    name: str
    collections: Sequence[Collection]


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What a program has declared. Without ``revocations``, only the lists in files count."""

    collections: tuple[Collection, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    rate_limit: RateLimit | None = None
    roles: Roles = Roles()
    revocations: Revocations | None = None

    @classmethod
    def of(cls, values: Iterable[Any]) -> Declared:
        """What there is for us among the values of a module. Raises :class:`BadCollections`."""
        # A value may have several names.
        known = list({id(value): value for value in values}.values())
        return cls(
            collections=tuple(value for value in known if isinstance(value, Collection)),
            namespaces=tuple(value for value in known if isinstance(value, Namespace)),
            rate_limit=_only(RateLimit, known),
            roles=_only(Roles, known) or Roles(),
            revocations=_only(Revocations, known),
        )

    def read_into(self, reader: Reader) -> None:
        where = "declared in Python"
        grouped = {id(one) for namespace in self.namespaces for one in namespace.collections}
        # A collection that was made before it was put into a namespace belongs there alone.
        reader.read_declared([one for one in self.collections if id(one) not in grouped], where=where)
        for namespace in self.namespaces:
            reader.read_declared(namespace.collections, namespace.name, where)
        if self.rate_limit is not None:
            reader.read_rate_limit(where, msgspec.to_builtins(self.rate_limit))

    def config(self) -> CollectionsConfig:
        """The declared collections by themselves. Raises :class:`BadCollections`."""
        reader = Reader()
        self.read_into(reader)
        return reader.config()


def _only(kind: type[Any], values: Iterable[object]) -> Any:
    found = [value for value in values if isinstance(value, kind)]
    if len(found) > 1:
        raise BadCollections([f"declared in Python: there are {len(found)} of {kind.__name__}; there can be one"])
    return found[0] if found else None
