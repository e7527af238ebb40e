from __future__ import annotations

import logging

import pytest

from strandline.service.frequent_warning import LOG_SECONDS, FrequentWarning


def test_a_frequent_warning_is_logged_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    warn = FrequentWarning(logging.getLogger("test"), "refused %d requests: %s", lambda: now)
    for _ in range(300):
        warn("slow")
    now = LOG_SECONDS
    warn("still slow")
    assert caplog.messages == ["refused 1 requests: slow", "refused 300 requests: still slow"]
