"""The server's log: one line per message, even if a name, a header or an error contains control characters."""

from __future__ import annotations

import logging
from typing import Any

from strandline.control_characters import visible_line

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """Escapes control characters in messages and indents tracebacks, so that only messages start at a line's start."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = visible_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(f"  {visible_line(line)}" for line in super().formatException(ei).split("\n"))


def log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
