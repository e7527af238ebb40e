from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.search import _questions
from bench.search_documents import BATCH, documents
from bench.search_sides import Side, Sqlite, Strandline, Tantivy

TOTAL = 3000


def test_documents_are_the_same_for_every_caller_and_mostly_different() -> None:
    (batch,) = documents(TOTAL)
    assert next(documents(TOTAL)) == batch
    assert len(set(batch)) == TOTAL <= BATCH
    first = msgspec.json.decode(batch[0])
    assert set(first) == {"at", "service", "user", "status", "latency", "note"}
    assert 200 < sum(map(len, batch)) / TOTAL < 300


def test_all_sides_find_the_same_number_of_documents(tmp_path: Path) -> None:
    sides: list[Side] = [
        Strandline(tmp_path / "data", TOTAL),
        Tantivy(tmp_path / "tantivy"),
        Sqlite(tmp_path / "sqlite.db"),
    ]
    for batch in documents(TOTAL):
        for side in sides:
            side.add(batch)
    for side in sides:
        side.finish()
        assert side.size() > 0
    try:
        for questions in _questions(15):
            found = [[side.ask(question) for question in questions] for side in sides]
            assert found[0] == found[1] == found[2], questions[0].kind
            assert any(found[0])
    finally:
        for side in sides:
            side.close()


@pytest.mark.parametrize("count", [1, 10])
def test_a_batch_is_not_longer_than_what_is_left(count: int) -> None:
    assert sum(map(len, documents(BATCH + count))) == BATCH + count
