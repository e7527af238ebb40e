"""What an answer lacks, and what it was made of."""

from __future__ import annotations

import pytest
from support.searched_log import CONFIG

from strandline.query.bound import bind_search
from strandline.query.language import parse
from strandline.query.search import Coverage, families_of


def coverage(head: int, after: int, through: int, timed_out: bool = False) -> Coverage:
    return Coverage(
        head=head, after=after, through=through, primary_timestamp=None, omitted_ts=None, timed_out=timed_out
    )


def test_what_is_missing_is_before_and_behind() -> None:
    found = coverage(head=100, after=10, through=70)
    assert found.missing == 40
    assert [found.missing_up_to(seq) for seq in (0, 5, 10, 70, 80, 100, 200)] == [0, 5, 10, 10, 20, 40, 40]
    assert (found.mode, found.complete) == ("published", False)


def test_an_answer_is_complete_if_nothing_is_missing_and_there_was_time() -> None:
    assert coverage(5, 0, 5).complete
    assert coverage(5, 0, 5).mode == "complete"
    late = coverage(5, 0, 5, timed_out=True)
    assert (late.mode, late.complete) == ("complete", False)


@pytest.mark.parametrize(
    ("query", "families"),
    [
        ("status:1", {"exact"}),
        ("status:>1", {"col"}),
        ("NOT note:red", {"fts"}),
        ("svc:a*", {"fts"}),
        ("has:note", {"fts"}),
        ("has:tag OR status:<2", {"exact", "col"}),
        ("red", {"fts", "exact"}),
    ],
)
def test_a_query_needs_what_its_clauses_need(query: str, families: set[str]) -> None:
    assert set(families_of(bind_search(parse(query), CONFIG))) == families
