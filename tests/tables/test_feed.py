"""The feed: the rows of all parents in one order, as far as a reader may see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.tables_in_process import NOW, Bed, Poll, Vote

from strandline.engine import Batch, Engine, ManualClock, Options
from strandline.engine.testing.fault_disk import Crashed, FaultDisk
from strandline.tables import BadDeclaration, HookContext, Hooks, Item, Row, Table, TableError, Tables, make_log
from strandline.tables.feed import COMPLETE
from strandline.tables.names import feed_log, rows_log, table_of
from strandline.tables.rows import feed_entry_of

POLL = make_log("poll", parent="site", schema=Poll)
VOTE = make_log("vote", parent=POLL, schema=Vote, soft_delete=True, pub="isPublic", feed=True)
WITHOUT = make_log("vote", parent=POLL, schema=Vote, soft_delete=True, pub="isPublic")


def polls(bed: Bed, *declared: Any) -> Table:
    """A public poll of Ann's, main:1, and a private one of Bob's, main:2."""
    tables = bed.bind(POLL, *(declared or (VOTE,)))
    bed.done(tables["poll"].append("main", {"title": "Lunch?", "isPublic": True}, user="ann"))
    bed.done(tables["poll"].append("main", {"title": "Secret?"}, user="bob"))
    return tables["vote"]


def vote(bed: Bed, votes: Table, poll: int, user: str | None, option: int = 0) -> str:
    bed.clock.advance(1)
    return bed.done(votes.append(f"main:{poll}", {"optionIdx": option}, user=user)).id


def ids(table: Table, **options: Any) -> list[str]:
    return [row.id for row in table.feed(**options).rows]


def entries(engine: Engine, table: str = "vote") -> list[tuple[str, str, int | None]]:
    page = engine.log(feed_log(table)).read(limit=10_000)
    return [(entry.op, entry.parent, entry.seq) for entry in map(feed_entry_of, page.data)]


def test_rows_of_all_parents_are_in_one_order(bed: Bed) -> None:
    votes = polls(bed)
    assert votes.feed().rows == []
    assert votes.feed().is_done
    for poll, user in ((1, "cat"), (2, "bob"), (1, "dan"), (2, "bob"), (1, "cat")):
        vote(bed, votes, poll, user)
    assert ids(votes) == ["main:1:3", "main:2:2", "main:1:2", "main:2:1", "main:1:1"]
    first = votes.feed(limit=2)
    assert [row.id for row in first.rows] == ["main:1:3", "main:2:2"]
    vote(bed, votes, 1, "cat")
    second = votes.feed(limit=2, cursor=first.cursor)
    assert [row.id for row in second.rows] == ["main:1:2", "main:2:1"]
    last = votes.feed(limit=2, cursor=second.cursor)
    assert ([row.id for row in last.rows], last.is_done, last.cursor) == (["main:1:1"], True, None)
    assert votes.feed(limit=1).rows[0] == votes.read("main:1:4")


def test_a_reader_sees_exactly_the_rows_that_reads_by_parent_show(bed: Bed) -> None:
    votes = polls(bed)
    for poll, user in ((1, "cat"), (2, "bob"), (1, "bob"), (2, None), (1, None)):
        vote(bed, votes, poll, user)
    for user in ("ann", "bob", "cat", "dan", None):
        by_parent = [row for poll in (1, 2) for row in votes.list(f"main:{poll}", user=user).rows]
        assert sorted(ids(votes, user=user)) == sorted(row.id for row in by_parent)
    assert ids(votes, public=True) == ["main:1:3", "main:1:2", "main:1:1"]
    assert ids(votes, user="bob") == ["main:2:2", "main:1:2", "main:2:1"]
    assert ids(votes, may_read=lambda parent: parent == "main:2") == ["main:2:2", "main:2:1"]
    bed.done(votes.tables["poll"].update("main:1", {"isPublic": False}))
    assert ids(votes, public=True) == []
    bed.done(votes.tables["poll"].rm("main:2"))
    assert ids(votes, user="bob") == ["main:1:2"], "the parent of the others is gone"


def test_removed_rows_are_not_in_it_and_restored_ones_are_again(bed: Bed) -> None:
    votes = polls(bed)
    for poll in (1, 2, 1):
        vote(bed, votes, poll, None)
    bed.done(votes.update("main:1:1", {"optionIdx": 7}))
    assert [row.payload["optionIdx"] for row in votes.feed().rows] == [0, 0, 7]
    bed.done(votes.rm("main:1:2"))
    assert ids(votes) == ["main:2:1", "main:1:1"]
    bed.done(votes.restore("main:1:2"))
    bed.done(votes.purge_by_parent("main:2"))
    assert ids(votes) == ["main:1:2", "main:1:1"]
    bed.done(votes.restore_by_parent("main:2"))
    assert ids(votes) == ["main:1:2", "main:2:1", "main:1:1"]
    # Nothing refers to a row that is gone for good, apart from the fact of its removal.
    bed.done(votes.rm("main:1:2", hard=True))
    assert [entry for entry in entries(bed.engine) if entry[1:] == ("main:1", 2)] == [("rm", "main:1", 2)]
    bed.done(votes.purge_by_parent("main:1", hard=True))
    assert [entry for entry in entries(bed.engine) if entry[1] == "main:1"] == [("purge", "main:1", None)]
    assert ids(votes) == ["main:2:1"]


def test_parents_whose_names_begin_alike_are_kept_apart(bed: Bed) -> None:
    notes = bed.bind(make_log("note", parent="desk", schema=Vote, feed=True))["note"]
    for parent in ("a", "a:1", "ab"):
        bed.done(notes.append(parent, {"optionIdx": 1}))
    bed.done(notes.purge_by_parent("a"))
    assert ids(notes) == ["ab:1", "a:1:1"]


def test_what_hooks_write_is_in_the_feed_too(bed: Bed) -> None:
    def copy(ctx: HookContext, row: Row) -> None:
        ctx.append("copy", "all", row.payload)
        ctx.update("copy", "all:1", {"optionIdx": row.seq})

    hooked = make_log("vote", parent="room", schema=Vote, feed=True, hooks=Hooks(after_append=copy))
    tables = bed.bind(hooked, make_log("copy", parent="room", schema=Vote, feed=True))
    bed.done(tables["vote"].append_bulk("r", [{"optionIdx": 1}, {"optionIdx": 2}]))
    assert ids(tables["vote"]) == ["r:2", "r:1"]
    assert ids(tables["copy"]) == ["all:2", "all:1"]
    assert entries(bed.engine, "copy") == [("append", "all", 1), ("append", "all", 2)], "edits within one step"


def test_a_page_examines_a_bounded_number_of_rows(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.tables.feed.SCAN_ROWS", 4)
    votes = polls(bed)
    mine = vote(bed, votes, 1, "dan")
    for _ in range(6):
        vote(bed, votes, 1, "cat")
    page = votes.feed(user="dan")
    assert (page.rows, page.is_done) == ([], False)
    page = votes.feed(user="dan", cursor=page.cursor)
    assert ([row.id for row in page.rows], page.is_done) == ([mine], True)


def test_a_repeated_append_adds_nothing(bed: Bed) -> None:
    votes = polls(bed)
    for _ in range(2):
        bed.done(votes.append_bulk("main:1", [Item(Vote(1), "k"), Item(Vote(2), "l")]))
    assert ids(votes) == ["main:1:2", "main:1:1"]


def test_a_table_without_a_feed_says_so(plain_bed: Bed) -> None:
    votes = polls(plain_bed, WITHOUT)
    with pytest.raises(TableError, match="declared without feed"):
        votes.feed()
    with pytest.raises(TableError, match="no public reads"):
        plain_bed.bind(make_log("note", parent="desk", schema=Vote, feed=True))["note"].feed(public=True)
    with pytest.raises(BadDeclaration, match="feed"):
        make_log("note", parent="desk", schema=Vote, feed="yes")  # type: ignore[arg-type]


def test_the_log_of_a_feed_belongs_to_its_table(plain_bed: Bed) -> None:
    assert table_of(feed_log("vote")) == "vote"
    plain_bed.engine.create(feed_log("vote")).wait()
    with pytest.raises(BadDeclaration, match="does not belong to the table vote"):
        plain_bed.bind(POLL, VOTE)


# --- a feed for existing rows ---------------------------------------------------------------------------------------


def test_existing_rows_are_added_in_the_order_of_their_times(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.tables.feed.FILL_ROWS", 6)
    monkeypatch.setattr("strandline.tables.feed.FILL_BATCH", 4)
    votes = polls(bed, WITHOUT)
    appended = [vote(bed, votes, 1 + at % 2, "bob") for at in range(9)]
    bed.done(votes.rm("main:1:2"))
    bed.done(votes.rm("main:2:1", hard=True))
    votes = bed.reopen(POLL, VOTE)["vote"]
    shown = [each for each in reversed(appended) if each not in ("main:1:2", "main:2:1")]
    assert ids(votes) == shown
    assert ids(votes, user="bob") == shown
    bed.done(votes.restore("main:1:2"))
    assert ids(votes) == [each for each in reversed(appended) if each != "main:2:1"]
    # Only once: later starts add nothing.
    before = entries(bed.engine)
    bed.reopen(POLL, VOTE)
    assert entries(bed.engine) == before


def test_a_feed_that_was_declared_off_for_a_while_is_complete_again(bed: Bed) -> None:
    votes = polls(bed)
    vote(bed, votes, 1, "cat")
    votes = bed.reopen(POLL, WITHOUT)["vote"]
    assert bed.engine.find(feed_log("vote")) is None
    vote(bed, votes, 2, "bob")
    votes = bed.reopen(POLL, VOTE)["vote"]
    assert ids(votes) == ["main:2:1", "main:1:1"]


def test_a_feed_that_was_not_completed_is_made_again(bed: Bed) -> None:
    votes = polls(bed)
    for _ in range(3):
        vote(bed, votes, 1, "cat")
    feed = bed.engine.log(feed_log("vote"))
    feed.note({COMPLETE: None}).wait()
    feed.append(Batch([feed.read().data[0]])).wait()
    votes = bed.reopen(POLL, VOTE)["vote"]
    assert ids(votes) == ["main:1:3", "main:1:2", "main:1:1"]
    assert len(entries(bed.engine)) == 3


def test_a_feed_that_exceeds_the_quota_is_not_declared(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", Options(max_logs=1), background=False) as engine:
        Tables(engine, [PLAIN])["vote"].append("a", {"optionIdx": 1}).wait()
        with pytest.raises(BadDeclaration, match=r"no room for the feed of vote: .*max_logs"):
            Tables(engine, [LABELLED])
        assert Tables(engine, [PLAIN])["vote"].read("a:1") is not None


# --- crashes --------------------------------------------------------------------------------------------------------

LABELLED = make_log("vote", parent="room", schema=Vote, soft_delete=True, feed=True)
PLAIN = make_log("vote", parent="room", schema=Vote, soft_delete=True)


def open_tables(disk: FaultDisk, declared: Any = LABELLED) -> tuple[Engine, Tables]:
    engine = Engine.open(disk, Options(cache_bytes=1 << 20), clock=ManualClock(NOW), background=False)
    return engine, Tables(engine, [declared])


def steps(engine: Engine, votes: Table) -> Iterator[Callable[[], Any]]:
    yield lambda: votes.append("a", {"optionIdx": 1, "comment": "x" * 600}).wait()
    yield lambda: votes.append("b", {"optionIdx": 1}).wait()
    yield lambda: [write.wait() for write in [votes.append("a", {"optionIdx": 2}), votes.append("b", Vote(2))]]
    yield lambda: votes.append_bulk("c", [Vote(3), Vote(4)], user="u").wait()
    yield lambda: votes.rm("a:1", hard=True).wait()
    yield engine.seal
    yield lambda: votes.update("b:1", {"optionIdx": 5}).wait()
    yield lambda: votes.purge_by_parent("c", hard=True).wait()
    yield lambda: votes.append("c", {"optionIdx": 6}).wait()


def check_pairs(engine: Engine) -> None:
    """No row is without an entry, and no entry without a row."""
    parents = [name.partition("/")[2] for name in engine.names("vote/")]
    rows = {(parent, seq) for parent in parents for seq in engine.log(rows_log("vote", parent)).read(limit=100).seqs}
    told = [entry[1:] for entry in entries(engine) if entry[0] == "append"]
    assert set(told) == rows
    assert len(told) == len(rows)


def crashed(directory: Path, call: int, begin: Callable[[FaultDisk], Any]) -> FaultDisk:
    directory.mkdir()
    disk = FaultDisk(directory)
    prepared = begin(disk)
    disk.crash_after(disk.calls + call)
    with suppress(Crashed):
        prepared()
    return disk


def run_steps(disk: FaultDisk) -> Callable[[], None]:
    engine, tables = open_tables(disk)
    return lambda: [step() for step in steps(engine, tables["vote"])] and None


def run_filling(disk: FaultDisk) -> Callable[[], None]:
    engine, tables = open_tables(disk, PLAIN)
    for _ in range(3):
        for parent in ("a", "b"):
            tables["vote"].append(parent, {"optionIdx": 1}).wait()
    return lambda: Tables(engine, [LABELLED]) and None


@pytest.mark.parametrize("run", [run_steps, run_filling])
def test_after_a_crash_every_row_has_its_entry_and_every_entry_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    monkeypatch.setattr("strandline.tables.feed.FILL_BATCH", 2)
    number = count()
    whole = FaultDisk(_made(tmp_path / "whole"))
    prepared = run(whole)
    before = whole.calls
    prepared()
    calls = whole.calls - before
    assert calls > 5
    for call in range(calls + 1):
        for seed in (None, call + 1, -1):
            disk = crashed(tmp_path / str(next(number)), call, run)
            engine, tables = open_tables(disk.process_kill() if seed == -1 else disk.power_cut(seed))
            try:
                check_pairs(engine)
                tables["vote"].append("a", {"optionIdx": 9}).wait()
                check_pairs(engine)
            except BaseException as error:
                error.add_note(f"crashed after call {call} of {calls}")
                raise
            engine.close()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
