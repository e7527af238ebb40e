from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Log, ManualClock, Page
from strandline.engine.errors import BadRequest
from strandline.engine.reads.page import SCAN_RECORDS
from strandline.key_share import KeyShares, share_of


def walk(log: Log, after: int = 0, **query: object) -> list[Page]:
    """Read on until a page says that it is caught up."""
    pages = [log.read(after, **query)]  # type: ignore[arg-type]
    while not pages[-1].caught_up:
        assert pages[-1].next_after >= pages[-1].seqs[-1] if pages[-1].seqs else True
        pages.append(log.read(pages[-1].next_after, **query))  # type: ignore[arg-type]
    return pages


@pytest.fixture(params=["tail", "sealed", "both", "cold"])
def log(request: pytest.FixtureRequest, tmp_path: Path):
    """Ten records, 1 to 10, of sizes 1 to 10, in three blocks, keys a b c in turn, nodes x y in turn."""
    where = request.param
    cold = {"cold_url": str(tmp_path / "cold"), "hot_segments": 0} if where == "cold" else {}
    clock = ManualClock(NOW)
    with opened(tmp_path / "data", clock, **cold) as engine:
        log = make(engine)
        for start, end in ((1, 5), (5, 6), (6, 11)):
            log.append(
                Batch(
                    [b"%d" % (n % 10) * n for n in range(start, end)],
                    keys=["abc"[n % 3] for n in range(start, end)],
                    nodes=["xy"[n % 2] if n != 7 else None for n in range(start, end)],
                )
            ).wait()
            clock.advance(1000)
            if where == "sealed" or where == "cold" or (where == "both" and start == 5):
                engine.seal()
        yield log


def test_pages_follow_each_other(log: Log) -> None:
    pages = walk(log, limit=4)
    assert [page.seqs for page in pages] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert [page.next_after for page in pages] == [4, 8, 10]
    assert [page.caught_up for page in pages] == [False, False, True]
    assert all(page.head == 10 and page.earliest == 1 and page.tombstone is None for page in pages)


def test_a_page_that_ends_at_the_head_is_caught_up(log: Log) -> None:
    assert log.read(8, 2).caught_up
    assert not log.read(7, 2).caught_up


def test_at_the_head_there_is_nothing(log: Log) -> None:
    page = log.read(10)
    assert (page.seqs, page.next_after, page.caught_up, page.tombstone) == ([], 10, True, None)


def test_the_byte_budget_holds_except_for_a_first_record(log: Log) -> None:
    assert log.read(0, max_bytes=6).seqs == [1, 2, 3]
    assert log.read(0, max_bytes=5).seqs == [1, 2]
    assert log.read(8, max_bytes=1).seqs == [9]
    assert [seq for page in walk(log, max_bytes=12) for seq in page.seqs] == list(range(1, 11))


def test_own_nodes_are_left_out_silently(log: Log) -> None:
    pages = walk(log, without_nodes=["x"], limit=2)
    assert [seq for page in pages for seq in page.seqs] == [1, 3, 5, 7, 9]
    assert all(page.tombstone is None for page in pages)
    assert [seq for page in walk(log, without_nodes=["x", "y"]) for seq in page.seqs] == [7]


def test_by_key_and_by_prefix(log: Log) -> None:
    assert [seq for page in walk(log, key="b", limit=2) for seq in page.seqs] == [1, 4, 7, 10]
    assert log.read(4, key="b").seqs == [7, 10]
    assert log.read(key="nope").seqs == []
    assert log.read(key="nope").caught_up
    assert log.read(key_prefix="").seqs == list(range(1, 11))
    assert log.read(key="a", without_nodes=["x"]).seqs == [3, 9]
    assert log.read(key="a", key_prefix="b").seqs == []


def test_since_a_time(log: Log) -> None:
    assert log.read(since=NOW).seqs == list(range(1, 11))
    assert log.read(since=NOW + 1).seqs == list(range(5, 11))
    assert log.read(since=NOW + 1000).seqs == list(range(5, 11))
    assert log.read(since=NOW + 1001).seqs == list(range(6, 11))
    assert log.read(7, since=NOW + 1000).seqs == [8, 9, 10]
    late = log.read(since=NOW + 9999)
    assert (late.seqs, late.caught_up, late.next_after) == ([], True, 10)


def test_deleted_and_hidden_records_are_passed_over(log: Log) -> None:
    log.delete(seqs=[1, 4, 5, 6]).wait()
    log.hide(seqs=[8, 10]).wait()
    assert [page.seqs for page in walk(log, limit=2)] == [[2, 3], [7, 9]]
    assert log.read(3, 1).next_after >= 7


def test_amended_records_count_with_their_new_size(log: Log) -> None:
    log.amend(1, b"long enough").wait()
    log.amend(3, b"").wait()
    assert log.read(0, max_bytes=13).seqs == [1, 2, 3]
    assert log.read(0, max_bytes=12).seqs == [1]
    assert [record.data for record in log.read(0, 3)] == [b"long enough", b"22", b""]


def test_a_cursor_beyond_everything_was_from_another_log(log: Log) -> None:
    page = log.read(11)
    assert page.tombstone is not None
    assert page.tombstone.reason == "recreated"
    assert page.seqs == list(range(1, 11))


def test_another_epoch_is_recognised_exactly(log: Log) -> None:
    assert log.read(5, epoch=log.epoch).seqs == [6, 7, 8, 9, 10]
    page = log.read(5, epoch=log.epoch + 1)
    assert page.tombstone is not None
    assert page.seqs == list(range(1, 11))


@pytest.mark.parametrize("wrong", [{"after": -1}, {"limit": 0}, {"max_bytes": 0}])
def test_senseless_questions_are_refused(log: Log, wrong: dict[str, int]) -> None:
    with pytest.raises(BadRequest):
        log.read(**wrong)


def test_a_cap_leaves_a_tombstone(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, cap_records=3)
        fill(log, *"1234567")
        page = log.read(1)
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (2, 4, "cap")
        assert (page.tombstone.missed, page.tombstone.earliest, page.tombstone.head) == (3, 5, 7)
        assert page.seqs == [5, 6, 7]
        assert log.read(4).tombstone is None


def test_deleted_records_do_not_count_towards_a_cap(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, cap_records=3)
        fill(log, *"123")
        log.delete(seqs=[2]).wait()
        fill(log, "4")
        assert (texts(log), log.state().evict_floor) == (["1", "3", "4"], 1)
        fill(log, "5")
        assert (texts(log), log.state().evict_floor) == (["3", "4", "5"], 2)


def test_a_cap_in_bytes_evicts_until_it_fits(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, cap_bytes=10)
        fill(log, "aaaa", "bbbb", "cc", "dddddd")
        assert (texts(log), log.state().size, log.state().earliest) == (["cc", "dddddd"], 8, 3)
        fill(log, "e" * 11)
        assert (texts(log), log.state().size, log.state().earliest) == ([], 0, 6)


def test_time_leaves_a_tombstone_of_its_own(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=1000, cap_records=10)
        fill(log, "1", "2")
        clock.advance(500)
        fill(log, "3")
        clock.advance(500)
        assert texts(log) == ["1", "2", "3"]
        clock.advance(1)
        page = log.read()
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (1, 2, "ttl")
        assert page.seqs == [3]
        clock.advance(500)
        state = log.state()
        assert (state.count, state.earliest, state.evict_floor) == (0, 4, 4)


def test_cap_and_time_together_are_mixed(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=1000, cap_records=2)
        fill(log, "1", "2", "3")
        clock.advance(1001)
        fill(log, "4")
        reasons = [log.read(after).tombstone for after in (0, 1)]
        assert [tombstone and tombstone.reason for tombstone in reasons] == ["mixed", "ttl"]


def test_what_expired_stays_so_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=1000)
        fill(log, "1")
        clock.advance(2000)
        assert texts(log) == []
    clock.set(NOW)
    with opened(tmp_path, clock) as engine:
        assert texts(engine.log("a")) == []


def test_a_gap_ends_a_page_and_the_next_one_reports_it(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "1", "2")
        log.skip(3, "source_trim").wait()
        fill(log, "6")
        first = log.read()
        assert (first.seqs, first.tombstone, first.next_after, first.caught_up) == ([1, 2], None, 2, False)
        second = log.read(2)
        assert second.tombstone is not None
        assert (second.tombstone.gap_from, second.tombstone.gap_to) == (3, 5)
        assert second.tombstone.reason == "source_trim"
        assert second.seqs == [6]
        inside = log.read(3).tombstone
        assert inside is not None
        assert (inside.gap_from, inside.gap_to) == (4, 5)


def test_a_gap_behind_deleted_records_is_reported_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "1", "2")
        log.skip(1, "source_trim").wait()
        fill(log, "4")
        log.delete(before=3).wait()
        page = log.read()
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to) == (3, 3)
        assert page.seqs == [4]


def test_a_gap_at_the_very_end_is_reported_too(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "1")
        log.skip(2, "source_trim").wait()
        page = log.read(1)
        assert page.tombstone is not None
        assert (page.seqs, page.next_after, page.caught_up, page.head) == ([], 3, True, 3)


def test_a_filter_that_nothing_passes_ends_the_page_all_the_same(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        count = SCAN_RECORDS + 10
        log.append(Batch([b"x"] * count, nodes=["me"] * count)).wait()
        page = log.read(without_nodes=["me"])
        assert (page.seqs, page.next_after, page.caught_up) == ([], SCAN_RECORDS, False)
        assert log.read(page.next_after, without_nodes=["me"]).caught_up


@pytest.mark.parametrize("change", ["delete", "hide", "amend"])
def test_a_page_after_changed_records_shows_no_change_and_one_before_them_does(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="memory")
        fill(log, "1", "2", "3", "4")
        if change == "amend":
            log.amend(2, b"new").wait()
        else:
            getattr(log, change)(seqs=[2]).wait()
        assert texts(log, after=2) == ["3", "4"]
        assert texts(log) == (["1", "new", "3", "4"] if change == "amend" else ["1", "3", "4"])
        assert texts(log, after=1) == (["new", "3", "4"] if change == "amend" else ["3", "4"])
        log.restore(seqs=[2]).wait()
        assert (texts(log, after=1) == ["2", "3", "4"]) == (change == "hide")


def test_a_share_has_the_records_of_its_keys(log: Log) -> None:
    """Each record is in one share, and all records of a key are in the same one."""
    found = [
        [seq for page in walk(log, limit=2, shares=KeyShares(4, frozenset([share]))) for seq in page.seqs]
        for share in range(4)
    ]
    assert sorted(seq for seqs in found for seq in seqs) == list(range(1, 11))
    for share, seqs in enumerate(found):
        assert all(share_of("abc"[seq % 3], seq, 4) == share for seq in seqs)
    some = [seq for page in walk(log, shares=KeyShares(4, frozenset([0, 2]))) for seq in page.seqs]
    assert some == sorted(found[0] + found[2])
    both = walk(log, shares=KeyShares(4, frozenset([share_of("a", 0, 4)])), without_nodes=["x"])
    assert [seq for page in both for seq in page.seqs] == [
        seq for seq in found[share_of("a", 0, 4)] if "xy"[seq % 2] != "x" or seq == 7
    ]


def test_records_without_a_key_are_shared_by_seq(tmp_path: Path) -> None:
    with opened(tmp_path / "data", ManualClock(NOW)) as engine:
        log = make(engine)
        fill(log, *"abcdefghij")
        assert log.read(0, shares=KeyShares(4, frozenset([1]))).seqs == [1, 5, 9]
