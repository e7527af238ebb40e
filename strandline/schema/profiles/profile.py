"""The interface of a profile, the registry it brings, and the generic profile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from strandline.query.config_parser import parse_search_config
from strandline.schema.errors import SchemaError
from strandline.schema.options import Options, read_options
from strandline.schema.registry import Registry
from strandline.schema.routing import RoutingKey

ProfileKind = Literal["evlog", "generic", "metrics", "otel-traces", "state-protocol"]


class Profile(ABC):
    """A value: it is never changed, and holds nothing of any stream."""

    kind: ClassVar[ProfileKind]
    #: Whether records are rewritten before they are stored. Without it ``normalise`` only looks at them.
    normalises: ClassVar[bool] = False
    #: Whether its streams hold JSON.
    needs_json: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def parse(cls, document: dict[str, Any]) -> Profile:
        """The profile that a document declares. Raises SchemaError."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What is shown under "profile"; keys that were not set are left out."""

    @property
    def named_streams(self) -> tuple[str, ...]:
        """Other streams that the profile names."""
        return ()

    def stored(self) -> dict[str, Any]:
        """Builtins that ``load_profile`` makes this profile of."""
        return self.document()

    def check_install(self, *, is_json: bool, is_empty: bool, current: Profile) -> None:
        """Raise SchemaError if a stream like this, that has the profile ``current``, cannot have this one."""
        if self.needs_json and not is_json:
            raise SchemaError(f"{self.kind} profile requires application/json stream content-type")

    def registry(self, stream_name: str) -> Registry | None:
        """The registry that replaces the stream's when the profile is installed; None keeps what is there."""
        return None

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        """What is stored of the decoded records of one append. ``now`` is in milliseconds. Raises SchemaError for the
        first that is not as it should be, and says which. What was given stays as it is."""
        return documents

    def keys_of(self, documents: list[Any]) -> list[str | None] | None:
        """The routing keys of normalised records, where neither schema nor header say them; None: they have none."""
        return None


def in_batch(error: SchemaError, index: int, count: int) -> SchemaError:
    """The error of one record of several, saying which."""
    return error if count == 1 else SchemaError(f"element {index}: {error}", error.status)


class Installed:
    """A first schema and what can be searched, for every stream of a profile."""

    def __init__(self, schema: dict[str, Any], search: dict[str, Any], *, routing_key: str | None = None) -> None:
        self._schema = schema
        self._search = parse_search_config(search)
        self._routing_key = None if routing_key is None else RoutingKey(routing_key, True)

    def registry(self, stream_name: str) -> Registry:
        return Registry.installed(stream_name, self._schema, routing_key=self._routing_key, search=self._search)


def closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that has these keys, all of them, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def field(kind: str, pointer: str, *flags: str, **settings: str) -> dict[str, Any]:
    """A searchable field of version 1."""
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **settings, **dict.fromkeys(flags, True)}


def text_field(pointer: str) -> dict[str, Any]:
    return field("text", pointer, "exists", "positions", analyzer="unicode_word_v1")


class GenericProfile(Options, frozen=True, tag_field="kind", tag="generic"):
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
