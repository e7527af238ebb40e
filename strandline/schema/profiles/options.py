"""Reading the options of a profile: every one is checked, and those that do not exist are refused."""

from __future__ import annotations

from typing import Any

from strandline.schema.errors import SchemaError

#: Whole numbers that every client can hold.
MAX_WHOLE = 2**53 - 1


class Options:
    """One object of a profile's document. ``given`` collects what was set, in the form that it is stored."""

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
                raise SchemaError(f"{self.path}.{name} is not supported")

    def has(self, name: str) -> bool:
        return name in self._document

    def section(self, name: str) -> Options | None:
        """The options one level down; what was set there is among what was set here."""
        if name not in self._document:
            return None
        section = Options(self._document[name], f"{self.path}.{name}")
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
        """A name: trimmed, and not empty if it is there."""
        if name not in self._document:
            return None
        value = self._document[name]
        if not isinstance(value, str) or not value.strip():
            raise SchemaError(f"{self.path}.{name} must be a non-empty string")
        return str(self._set(name, value.strip()))

    def texts(self, name: str, most: int, *, lower: bool = False) -> tuple[str, ...]:
        """Names: trimmed, each once, none of them empty."""
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
