from __future__ import annotations

import logging
import sys

from strandline.server.log_lines import LineFormatter

INJECTED = "x\r\n2026-01-01 00:00:00,000 INFO    strandline: a lie\x1b[2J\u202e\x85\u2028"


def record(message: str, *arguments: object, exc_info: object = None) -> logging.LogRecord:
    return logging.LogRecord("strandline", logging.ERROR, __file__, 1, message, arguments, exc_info)  # type: ignore[arg-type]


def test_a_message_is_one_line() -> None:
    line = LineFormatter().format(record("a request for %s failed", INJECTED))
    assert line.splitlines() == [line]
    assert line.isprintable()
    assert "\\r\\n2026-01-01" in line
    assert "\\u001b[2J\\u202e" in line


def test_no_line_of_a_traceback_can_be_taken_for_a_message() -> None:
    try:
        raise ValueError(INJECTED)
    except ValueError:
        told = LineFormatter().format(record("it failed", exc_info=sys.exc_info()))
    first, *further = told.split("\n")
    assert first.endswith("strandline: it failed")
    assert further
    assert all(line.startswith("  ") for line in further)
    assert told.replace("\n", "").isprintable()
