"""Times and durations as people write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d|w)", re.ASCII)
#: A longer duration is a typing error, and no server accepts it.
MAX_MS = (1 << 53) - 1
#: The start of the year 10000, which ISO 8601 cannot express.
END_OF_TIME = 253_402_300_800_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_duration(text: str, option: str) -> int:
    """Milliseconds, from ``500ms``, ``30s``, ``15m``, ``1h``, ``7d`` or ``2w``. Raises BadParameter."""
    match = _DURATION.fullmatch(text)
    duration = int(match[1]) * _UNITS[match[2]] if match else -1
    if not 0 <= duration <= MAX_MS:
        raise typer.BadParameter(
            f"{text!r} is not a duration; expected a number with a unit: 500ms, 30s, 15m, 1h, 7d or 2w",
            param_hint=option,
        )
    return duration


def parse_moment(text: str, option: str, now: int | None = None) -> int:
    """Milliseconds since 1970, from a duration before now (``1h``), milliseconds or ISO 8601. Raises BadParameter."""
    if _DURATION.fullmatch(text):
        return max((now_ms() if now is None else now) - parse_duration(text, option), 0)
    try:
        return parse_time(text, option)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is not a time; expected a duration before now (1h), ISO 8601 (2026-07-22T10:15:30Z) or "
            "milliseconds since 1970",
            param_hint=option,
        ) from None


def parse_time(text: str, option: str = "--at") -> int:
    """Milliseconds since 1970, from milliseconds or ISO 8601. Raises BadParameter."""
    try:
        if text.isascii() and text.isdigit():
            found = int(text)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            found = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        if not 0 <= found < END_OF_TIME:
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; expected ISO 8601 (2026-07-22T10:15:30.123Z) or milliseconds since 1970",
            param_hint=option,
        ) from None
    return found


def show_time(milliseconds: int | None) -> str:
    """ISO 8601 with milliseconds, in UTC; empty if there is no time."""
    if not milliseconds:
        return ""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def show_duration(milliseconds: int) -> str:
    """The shortest text that :func:`parse_duration` understands."""
    for unit in ("w", "d", "h", "m", "s"):
        if milliseconds and milliseconds % _UNITS[unit] == 0:
            return f"{milliseconds // _UNITS[unit]}{unit}"
    return f"{milliseconds}ms"


def show_age(milliseconds: int) -> str:
    """A duration in its two largest units, rounded down: ``250ms``, ``12s``, ``3m 5s``, ``2d 4h``."""
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)}ms"
    parts: list[str] = []
    rest = milliseconds
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(rest, _UNITS[unit])
        if number or parts:
            parts.append(f"{number}{unit}" if number else "")
    return " ".join(filter(None, parts[:2]))
