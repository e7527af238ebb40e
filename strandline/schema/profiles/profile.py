"""The interface of a profile, the registry it installs, and the generic profile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from strandline.query.config_parser import parse_search_config
from strandline.schema.errors import SchemaError
from strandline.schema.options import DeclaredOptions, read_options
from strandline.schema.registry import Registry
from strandline.schema.routing import RoutingKey

ProfileKind = Literal["evlog", "generic", "metrics", "otel-traces", "state-protocol"]


class Profile(ABC):
    """An immutable value that holds no state of any stream."""

    kind: ClassVar[ProfileKind]
    #: Whether records are rewritten before they are stored. Otherwise ``normalise`` only checks them.
    normalises: ClassVar[bool] = False
    #: Whether its streams contain JSON.
    needs_json: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def parse(cls, document: dict[str, Any]) -> Profile:
        """Return the profile that a document declares. Raises SchemaError."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What is shown under "profile". Keys that were not set are omitted."""

    @property
    def named_streams(self) -> tuple[str, ...]:
        """Other streams that the profile names."""
        return ()

    def stored(self) -> dict[str, Any]:
        """Return builtin values from which ``load_profile`` restores this profile."""
        return self.document()

    def check_install(self, *, is_json: bool, is_empty: bool, current: Profile) -> None:
        """Raise SchemaError if this profile cannot be installed on a stream with these properties and the profile
        ``current``."""
        if self.needs_json and not is_json:
            raise SchemaError(f"{self.kind} profile requires application/json stream content-type")

    def registry(self, stream_name: str) -> Registry | None:
        """Return the registry that replaces the stream's when the profile is installed; None keeps the existing one."""
        return None

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        """Return the stored form of the decoded records of one append. ``now`` is in milliseconds. Raises SchemaError
        for the first invalid record, with its position. Does not change its arguments."""
        return documents

    def keys_of(self, documents: list[Any]) -> list[str | None] | None:
        """Return the routing keys of normalised records, if neither schema nor header specify them; None: no keys."""
        return None


def in_batch(error: SchemaError, index: int, count: int) -> SchemaError:
    """Add the position to the error of one record of several."""
    return error if count == 1 else SchemaError(f"element {index}: {error}", error.status)


class Installed:
    """A first schema and a search configuration, for every stream of a profile."""

    def __init__(self, schema: dict[str, Any], search: dict[str, Any], *, routing_key: str | None = None) -> None:
        self._schema = schema
        self._search = parse_search_config(search)
        self._routing_key = None if routing_key is None else RoutingKey(routing_key, True)

    def registry(self, stream_name: str) -> Registry:
        return Registry.installed(stream_name, self._schema, routing_key=self._routing_key, search=self._search)


def closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these keys, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def field(kind: str, pointer: str, *flags: str, **settings: str) -> dict[str, Any]:
    """Return a searchable field of version 1."""
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **settings, **dict.fromkeys(flags, True)}


def text_field(pointer: str) -> dict[str, Any]:
    return field("text", pointer, "exists", "positions", analyzer="unicode_word_v1")


class GenericProfile(DeclaredOptions, frozen=True, tag_field="kind", tag="generic"):
    """Records are whatever they are."""


class Generic(Profile):
    kind = "generic"
    needs_json = False

    def document(self) -> dict[str, Any]:
        return {"kind": "generic"}

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Generic:
        read_options(GenericProfile, document, "profile")
        return GENERIC


GENERIC = Generic()
