"""The server's log: one line per message, even if a name, a header or an error contains control characters."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from strandline.control_characters import visible_line
from strandline.spans import current

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


class JsonFormatter(logging.Formatter):
    """One JSON object per line: the time in UTC, the level, the logger, the message, and the traceback of an error as
    one text. A line of the access log has its parts as members instead of a message. A line that is logged for a
    request that is traced has the ids of its trace and its span."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] | None = getattr(record, "fields", None)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"message": record.getMessage()} if fields is None else fields),
        }
        span = current()
        if span is not None:
            line["trace_id"], line["span_id"] = span.trace, span.id
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # With escapes instead of other characters, which also covers lone surrogates.
        return json.dumps(line)


def log_to_stderr(level: str, format: str = "text") -> None:
    """``format`` is ``text`` or ``json``."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if format == "json" else LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
