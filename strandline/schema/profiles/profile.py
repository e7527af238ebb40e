"""The interface of a profile, the parser of its options, the registry it installs, and the generic profile.

Every option is checked, and unknown options are refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from strandline.nearest_name import did_you_mean
from strandline.query.config_parser import parse_search_config
from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry
from strandline.schema.routing import RoutingKey

#: The largest integer that every client can represent.
MAX_WHOLE = 2**53 - 1


class ProfileOptions:
    """One object of a profile's document. ``given`` collects the options that were set, in their stored form."""

    def __init__(self, document: Any, path: str) -> None:
        if not isinstance(document, dict):
            raise SchemaError(f"{path} must be an object")
        self.path = path
        self.given: dict[str, Any] = {}
        self._document: dict[str, Any] = document

    def allow(self, *names: str) -> None:
        """Raise for the first key that is not one of these."""
        for name in self._document:
            if name not in names:
                raise SchemaError(f"{self.path}.{name} is not supported{did_you_mean(name, names)}")

    def has(self, name: str) -> bool:
        return name in self._document

    def section(self, name: str) -> ProfileOptions | None:
        """Return the options one level down. The options set there are included in ``given`` here."""
        if name not in self._document:
            return None
        section = ProfileOptions(self._document[name], f"{self.path}.{name}")
        self.given[name] = section.given
        return section

    def flag(self, name: str, default: bool) -> bool:
        value = self._document.get(name, default)
        if not isinstance(value, bool):
            raise SchemaError(f"{self.path}.{name} must be boolean")
        return bool(self._set(name, value))

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self._document.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise SchemaError(f"{self.path}.{name} must be {'|'.join(choices)}")
        return str(self._set(name, value))

    def whole(self, name: str, default: int, low: int, high: int = MAX_WHOLE) -> int:
        value = self._document.get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            bounds = f">= {low}" if high == MAX_WHOLE else f"between {low} and {high}"
            raise SchemaError(f"{self.path}.{name} must be an integer {bounds}")
        return int(self._set(name, value))

    def text(self, name: str) -> str | None:
        """Return a name: trimmed, and not empty if it is present."""
        if name not in self._document:
            return None
        value = self._document[name]
        if not isinstance(value, str) or not value.strip():
            raise SchemaError(f"{self.path}.{name} must be a non-empty string")
        return str(self._set(name, value.strip()))

    def texts(self, name: str, most: int, *, lower: bool = False) -> tuple[str, ...]:
        """Return names: trimmed, without duplicates, none of them empty."""
        if name not in self._document:
            return ()
        values = self._document[name]
        if not isinstance(values, list):
            raise SchemaError(f"{self.path}.{name} must be an array of strings")
        if len(values) > most:
            raise SchemaError(f"{self.path}.{name} must have at most {most} entries")
        found: dict[str, None] = {}
        for index, value in enumerate(values):
            if not isinstance(value, str) or not value.strip():
                raise SchemaError(f"{self.path}.{name}[{index}] must be a non-empty string")
            found[value.strip().lower() if lower else value.strip()] = None
        self._set(name, list(found))
        return tuple(found)

    def _set(self, name: str, value: Any) -> Any:
        if name in self._document:
            self.given[name] = value
        return value


class Profile(ABC):
    """An immutable value that holds no state of any stream."""

    kind: ClassVar[str]
    #: Whether records are rewritten before they are stored. Otherwise ``normalise`` only checks them.
    normalises: ClassVar[bool] = False
    #: Whether its streams contain JSON.
    needs_json: ClassVar[bool] = True

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


class Generic(Profile):
    kind = "generic"
    needs_json = False

    def document(self) -> dict[str, Any]:
        return {"kind": "generic"}

    @classmethod
    def parse(cls, options: ProfileOptions) -> Generic:
        options.allow("kind")
        return GENERIC


GENERIC = Generic()
