"""The lines of the access log, as text and with their parts."""

from __future__ import annotations

import logging

import pytest

from strandline.server.access_log import AccessLog
from strandline.service.http import Head
from strandline.spans import Inside, Span


def test_a_line_of_a_request_that_is_traced_ends_with_its_ids(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline.access")
    log, head = AccessLog(), Head("GET", "/v0/topics", "token=secret", {})
    span = Span("", 0x4BF9, 0, lambda _: None)
    log.note(head, 200, "127.0.0.1", 0.5, 3)
    with Inside(span):
        log.note(head, 200, "127.0.0.1", 0.5, 3)
        span.end()
        log.note(head, 200, "127.0.0.1", 0.5, 3)
    plain = "127.0.0.1 - GET /v0/topics 200 0.500000s 3B"
    assert caplog.messages == [plain, f"{plain} trace_id={0x4BF9:032x} span_id={span.id}", plain]
