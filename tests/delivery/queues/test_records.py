"""Finding single records by their seqs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.manual_queue import Stand

from strandline.engine.reads.single_records import READ_ALONG, READ_RECORDS, records_at


def found(stand: Stand, *seqs: int) -> list[int]:
    records = list(records_at(stand.log, seqs))
    assert [record.data for record in records] == [str(record.seq).encode() for record in records]
    return [record.seq for record in records]


def test_records_are_found_wherever_they_lie(stand: Stand) -> None:
    stand.fill(100)
    stand.engine.seal()
    stand.fill(100)
    far = 3 * READ_ALONG
    assert found(stand, 1, 2, 5, 5 + far, 99, 101, 200) == [1, 2, 5, 5 + far, 99, 101, 200]


def test_what_is_not_there_is_left_out(stand: Stand) -> None:
    stand.fill(50)
    stand.log.delete(seqs=[2, 3, 50]).wait()
    stand.log.delete(before=2).wait()
    assert found(stand, 1, 2, 3, 4, 40, 50, 51, 1000) == [4, 40]
    assert found(stand) == []


def test_more_than_one_read_holds_are_found_too(stand: Stand) -> None:
    stand.fill(2 * READ_RECORDS + 10)
    assert len(found(stand, *range(3, 2 * READ_RECORDS + 20))) == 2 * READ_RECORDS + 8


def test_any_selection_is_found(stand: Stand) -> None:
    stand.fill(80)
    gone = {7, 8, 9, 30, 80}
    stand.log.delete(seqs=sorted(gone)).wait()

    @given(st.sets(st.integers(1, 120)))
    def check(seqs: set[int]) -> None:
        assert found(stand, *sorted(seqs)) == sorted(seq for seq in seqs - gone if seq <= 80)

    check()
