"""Declarations: collections that a Python program declares, in addition to those in the settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from strandline.collections.config import Collection, CollectionsConfig, RateLimit
from strandline.collections.config_sources import ConfigReader
from strandline.collections.errors import BadCollections
from strandline.collections.roles import Roles
from strandline.signing.revocations import Revocations


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """Collections whose routes start with the name of the namespace."""

    name: str
    collections: Sequence[Collection]


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """All declarations of a program. Without ``revocations``, only the revocation lists in files apply."""

    collections: tuple[Collection, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    rate_limit: RateLimit | None = None
    roles: Roles = Roles()
    revocations: Revocations | None = None

    @classmethod
    def of(cls, values: Iterable[Any]) -> Declared:
        """Collect the declarations among the values of a module. Raises :class:`BadCollections`."""
        # A module can have several names for one value.
        known = list({id(value): value for value in values}.values())
        return cls(
            collections=tuple(value for value in known if isinstance(value, Collection)),
            namespaces=tuple(value for value in known if isinstance(value, Namespace)),
            rate_limit=_only(RateLimit, known),
            roles=_only(Roles, known) or Roles(),
            revocations=_only(Revocations, known),
        )

    def read_into(self, reader: ConfigReader) -> None:
        where = "declared in Python"
        grouped = {id(one) for namespace in self.namespaces for one in namespace.collections}
        # A collection of a namespace may also have a name in the module. It belongs to the namespace only.
        reader.read_declared([one for one in self.collections if id(one) not in grouped], where=where)
        for namespace in self.namespaces:
            reader.read_declared(namespace.collections, namespace.name, where)
        if self.rate_limit is not None:
            reader.read_rate_limit(where, msgspec.to_builtins(self.rate_limit))

    def config(self) -> CollectionsConfig:
        """The configuration of the declared collections alone. Raises :class:`BadCollections`."""
        reader = ConfigReader()
        self.read_into(reader)
        return reader.config()


def _only(kind: type[Any], values: Iterable[object]) -> Any:
    found = [value for value in values if isinstance(value, kind)]
    if len(found) > 1:
        raise BadCollections([f"declared in Python: found {len(found)} {kind.__name__} objects; expected at most one"])
    return found[0] if found else None
