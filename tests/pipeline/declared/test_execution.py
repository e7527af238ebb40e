from __future__ import annotations

import pytest

from strandline.pipeline.declared.execution import InputPosition, distance, retry_seconds
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


def test_a_view_that_is_computed_as_a_whole_is_behind_what_its_inputs_have_got() -> None:
    def at(**numbers: int) -> dict[str, InputPosition]:
        return {name: InputPosition(f"state {number}", number) for name, number in numbers.items()}

    before = at(orders=10, revenue=3, visits=7)
    assert distance(before, before) == 0
    # A log that was created again may be shorter.
    assert distance(before, at(orders=15, revenue=4, visits=2)) == 6
