from __future__ import annotations

import pytest

from strandline.pipeline.declared.errors import query_error


class Captured(Exception):
    """As Spark's exceptions: the cause is not Python's."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._cause = cause


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            Captured(
                "[STREAM_FAILED] Query x terminated",
                Captured("[CAST_INVALID_INPUT] The value 'x' is not an INT\nat a.b"),
            ),
            "[CAST_INVALID_INPUT] The value 'x' is not an INT",
        ),
        (
            Captured(
                "[STREAM_FAILED] Query x terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Error: Traceback (m\n"
                '  File "a.py", line 1\nstrandline.options.BadOption: unknown option'
            ),
            "strandline.options.BadOption: unknown option",
        ),
        (Captured("[STREAM_FAILED] Query x terminated with exception: disk full"), "disk full"),
        (OSError("the disk is full"), "OSError: the disk is full"),
    ],
)
def test_the_cause_is_told_in_one_line(error: Exception, message: str) -> None:
    assert query_error(error) == message
