"""Why jobs failed: the failures that come with a job, and the reasons that are sent to the server."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

import msgspec

from strandline.shortened_text import is_nested_deeper, shorten

#: The server shortens longer texts and refuses other longer reasons, as JSON.
MAX_REASON_BYTES = 4096
#: The server refuses reasons that are nested more deeply.
MAX_REASON_DEPTH = 64
#: The parts of the reason that describes an exception. The traceback gets the rest.
MAX_TYPE_BYTES = 200
MAX_MESSAGE_BYTES = 1200
#: The last frames and lines of a traceback.
MAX_FRAMES = 12
MAX_LINES = 40
MAX_LINE_CHARACTERS = 300

_encode = msgspec.json.encode


class JobFailure(msgspec.Struct, frozen=True):
    """A delivery of a job that failed: when (milliseconds), which one, at which worker, and why. ``reason`` is what the
    worker sent. If an exception was the reason, it has the members ``type``, ``message`` and ``traceback``."""

    at: int
    delivery: int
    node: str
    reason: Any

    @property
    def summary(self) -> str:
        """The reason in one line."""
        return summary_of(self.reason)


class JobFailed(Exception):
    """The function of a worker called ``job.fail`` and raised nothing. Its argument is the reason."""


def summary_of(reason: Any) -> str:
    """A reason in one line: the type and the message of an exception, the first line of a text, or JSON."""
    match reason:
        case {"type": str(kind), "message": str(message)}:
            text = f"{kind}: {message}" if message else kind
        case str():
            first, *more = reason.strip().splitlines() or [""]
            text = f"{first} …" if more else first
        case _:
            text = _encode(reason).decode()
    return " ".join(text.split())


def fitting(reason: Any) -> Any:
    """The reason as the server accepts it. An exception is described, and what is too long is cut. Raises TypeError or
    ValueError if it is not JSON."""
    if isinstance(reason, BaseException):
        return _described(reason)
    if isinstance(reason, str):
        return shorten(reason, MAX_REASON_BYTES)
    encoded = _encode(reason)
    if len(encoded) <= MAX_REASON_BYTES and not is_nested_deeper(encoded, MAX_REASON_DEPTH):
        return reason
    return shorten(encoded.decode(), MAX_REASON_BYTES)


def _described(error: BaseException) -> dict[str, str]:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str(error)
    except Exception:
        message = "<exception str() failed>"
    reason = {"type": shorten(name, MAX_TYPE_BYTES), "message": shorten(message, MAX_MESSAGE_BYTES), "traceback": ""}
    reason["traceback"] = _last_lines(_trace(error), MAX_REASON_BYTES - len(_encode(reason)))
    if not reason["traceback"]:
        del reason["traceback"]
    return reason


def _trace(error: BaseException) -> list[str]:
    """The lines of the traceback without the frames of the worker and without the message at its end."""
    frames = _without_worker(error.__traceback__)
    if frames is None:
        return []
    shown = traceback.TracebackException(type(error), error, frames, limit=-MAX_FRAMES)
    parts, end = list(shown.format()), list(shown.format_exception_only())
    return "".join(parts[: -len(end)] if parts[-len(end) :] == end else parts).splitlines()


def _without_worker(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and _is_worker(frames.tb_frame.f_globals.get("__name__", "")):
        frames = frames.tb_next
    return frames


def _is_worker(module: str) -> bool:
    return module.startswith(("strandline.client.", "concurrent.futures."))


def _last_lines(lines: list[str], most: int) -> str:
    kept: list[str] = []
    for line in reversed(lines[-MAX_LINES:]):
        line = shorten(line[:MAX_LINE_CHARACTERS], most)
        # The quotes of the text are already counted, and the line break takes the place of the quotes of a line.
        most -= len(_encode(line))
        if most < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))
