from __future__ import annotations

import pytest

from strandline.pipeline.declared.execution import retry_seconds
from strandline.pipeline.declared.project import BadProject


@pytest.mark.parametrize(
    ("failures", "error", "seconds"),
    [
        (1, RuntimeError(), 1),
        (4, RuntimeError(), 8),
        (50, RuntimeError(), 300),
        (1, BadProject(), 1),
        (50, BadProject("there is no log"), 10),
    ],
)
def test_a_table_whose_log_may_appear_does_not_wait_for_minutes(
    failures: int, error: Exception, seconds: float
) -> None:
    assert retry_seconds(failures, error) == seconds
