"""Values of options: their syntax, and the errors that name it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_DURATIONS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
#: The prefix of options for the object store of the cold tier.
COLD_PREFIX = "cold."


class BadOption(ValueError):
    """An unknown or invalid option. The message names it and the valid ones."""


class PerLog(msgspec.Struct, frozen=True):
    """A number for all logs, or numbers for single logs; None where there is no condition."""

    all: int | None = None
    logs: dict[str, int] = {}

    def of(self, log: str) -> int | None:
        return self.logs.get(log, self.all)


class GivenOptions:
    """The options that a user gives, by their canonical names, and how their values are read. ``aliases`` maps other
    names to canonical ones, ``instead`` has the names that are refused with advice. Raises BadOption."""

    def __init__(
        self,
        given: Mapping[str, str],
        known: Collection[str],
        aliases: Mapping[str, str],
        instead: Mapping[str, str],
    ) -> None:
        names = {name.lower(): name for name in (*known, *aliases)}
        advice = {name.lower(): text for name, text in instead.items()}
        self._values: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.cold_options: dict[str, str | bool] = {}
        for name, value in given.items():
            if name.lower().startswith(COLD_PREFIX):
                self.cold_options[name[len(COLD_PREFIX) :].lower()] = _boolean(value) if _is_boolean(value) else value
            elif name.lower() in advice:
                raise BadOption(f"unknown option {name!r}: {advice[name.lower()]}")
            elif name.lower() in names:
                self._add(names[name.lower()], aliases, value)
            else:
                raise BadOption(f"unknown option {name!r}; available are {', '.join(sorted(known))}")

    def _add(self, name: str, aliases: Mapping[str, str], value: str) -> None:
        canonical = aliases.get(name, name)
        if canonical in self._names:
            raise BadOption(f"{self._names[canonical]} and {name} are the same option: give one of them")
        self._names[canonical] = name
        self._values[canonical] = value

    def only_one(self, *names: str) -> None:
        found = [self._names[name] for name in names if name in self._names]
        if len(found) > 1:
            raise BadOption(f"{' and '.join(found)} cannot be combined: give one of them")

    def has(self, name: str) -> bool:
        return name in self._values

    def others(self, names: Collection[str]) -> list[str]:
        """The options that are given besides these, as the user has written them."""
        cold = [f"{COLD_PREFIX}{name}" for name in self.cold_options]
        return [said for name, said in self._names.items() if name not in names] + cold

    def text(self, name: str) -> str | None:
        text = self._values.get(name)
        if text is not None and not text.strip():
            raise BadOption(f"{name} must not be empty")
        return text

    def names(self, name: str) -> tuple[str, ...] | None:
        text = self._values.get(name)
        if text is None:
            return None
        names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if not names:
            raise BadOption(f"{name} must not be an empty list")
        return names

    def number(self, name: str, low: int, high: int = (1 << 63) - 1) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,19}", text.strip(), re.ASCII) or not low <= int(text) <= high:
            raise BadOption(f"{name} must be an integer from {low} to {high}, got {text!r}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = self._values.get(name)
        if text is None:
            return default
        if not _is_boolean(text):
            raise BadOption(f"{name} must be true or false, got {text!r}")
        return _boolean(text)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        text = self._values.get(name, default).strip().lower()
        if text not in choices:
            raise BadOption(f"{name} must be one of {', '.join(choices)}, got {text!r}")
        return text

    def pattern(self, name: str) -> str | None:
        text = self.text(name)
        try:
            re.compile(text or "")
        except re.error as error:
            raise BadOption(f"{name} must be a regular expression, got {text!r}: {error}") from None
        return text

    def size(self, name: str) -> int | None:
        """Bytes, with a unit of 1024, 1024² or 1024³ bytes if there is one."""
        return self._measure(name, _SIZES, 1, "a number of bytes from 1, such as 1048576 or 64m")

    def duration(self, name: str) -> int | None:
        return self._measure(name, _DURATIONS, 0, "milliseconds, or a duration such as 30s, 15m or 1h")

    def _measure(self, name: str, units: Mapping[str, int], low: int, wanted: str) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        found = re.fullmatch(r"([0-9]{1,15}) *([a-z]*)", text.strip().lower(), re.ASCII)
        if not found or found[2] not in units or int(found[1]) * units[found[2]] < low:
            raise BadOption(f"{name} must be {wanted}, got {text!r}")
        return int(found[1]) * units[found[2]]

    def positions(self, name: str, words: Mapping[str, int | None]) -> PerLog:
        """Seqs: one for all logs, or a JSON object with a seq per log. ``words`` are values with a name."""
        wanted = f"a sequence number from 1, {', '.join(map(repr, words))}"

        def seq(value: Any) -> int | None:
            if isinstance(value, str) and value.strip().lower() in words:
                return words[value.strip().lower()]
            if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,19}", str(value).strip(), re.ASCII):
                raise ValueError
            if not 1 <= int(value) < 1 << 63:
                raise ValueError
            return int(value)

        return self._per_log(name, seq, wanted)

    def times(self, name: str) -> PerLog:
        return self._per_log(name, _milliseconds, "milliseconds since 1970 or an ISO 8601 time")

    def _per_log(self, name: str, read: Callable[[Any], int | None], wanted: str) -> PerLog:
        text = self._values.get(name)
        if text is None:
            return PerLog()
        if not text.lstrip().startswith("{"):
            try:
                return PerLog(read(text))
            except ValueError:
                raise BadOption(f"{self._names[name]} must be {wanted}, or JSON by log, got {text!r}") from None
        try:
            by_log = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise BadOption(f"{self._names[name]} must be {wanted}, or JSON by log, got {text!r}: {error}") from None
        found = {}
        for log, value in by_log.items():
            try:
                found[log] = read(value)
            except (ValueError, TypeError):
                raise BadOption(
                    f"{self._names[name]} must be {wanted} for log {log!r}, got {msgspec.json.encode(value).decode()}"
                ) from None
        return PerLog(None, {log: value for log, value in found.items() if value is not None})


def _milliseconds(value: Any) -> int:
    """Milliseconds, or an ISO 8601 time, which is in UTC unless it has a zone. Raises ValueError."""
    text = str(value).strip()
    if isinstance(value, (bool, float)) or value is None:
        raise ValueError
    if re.fullmatch(r"[0-9]{1,16}", text, re.ASCII):
        return int(text)
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _is_boolean(text: str) -> bool:
    return text.strip().lower() in ("true", "false")


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"
