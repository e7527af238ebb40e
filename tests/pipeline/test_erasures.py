from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lake_rounds import Bed, append, by_key, check_typed, derived, install, text_schema
from support.local_tasks import work_here

from strandline.engine import Batch
from strandline.engine.operations.erasures import NAME
from strandline.lake.erasures import PROGRESS, PURGED
from strandline.pipeline import erasures


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def secret(number: int) -> Batch:
    return Batch(
        [f'{{"v":"payload-{number}"}}'.encode(), b"\xffpayload-bytes-%d" % number],
        keys=[f"key-{number}", f"key-{number}"],
        nodes=[f"node-{number}", None],
        metas=[f"meta-{number}".encode(), None],
    )


def traces(number: int) -> list[bytes]:
    return [
        f"{what}-{number}".encode() for what in ("payload", "payload-bytes", "key", "node", "meta")
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["delete", "delete by key", "hide", "drop", "trim"])
def test_of_what_was_erased_no_trace_is_in_any_file(bed: Bed, how: str) -> None:
    log, other = bed.log("a"), bed.log("b")
    install(log, text_schema("v"))
    log.append(secret(1)).wait()
    log.append(secret(2)).wait()
    other.append(secret(3)).wait()
    bed.engine.seal()
    bed.round()
    # Earlier versions of all tables have it too.
    log.append(secret(4)).wait()
    log.append(Batch([b"last"], keys=["key-1"])).wait()
    bed.round()
    # And so has what a killed task left.
    for table in ("records", "tables/a"):
        (bed.path / "lake" / table / "left.parquet").write_bytes(b"payload-1")
    for trace in traces(1):
        assert bed.grep(trace, "lake")
    if how == "delete":
        log.delete(seqs=[1, 2, 7]).wait()
    elif how == "delete by key":
        log.delete(key="key-1").wait()
    elif how == "hide":
        log.hide(prefix="key-1").wait()
    elif how == "trim":
        log.delete(before=3).wait()
        log.delete(key="key-1").wait()
    else:
        log.drop().wait()
    bed.round()
    for trace in traces(1):
        assert bed.grep(trace, "lake") == []
    for trace in traces(4):
        assert bool(bed.grep(trace, "lake")) == (how != "drop")
    for trace in traces(3):
        assert bed.grep(trace, "lake")
    assert by_key(bed) == derived(bed.rows())
    check_typed(bed)
    assert bed.heard.problems == []


def test_of_a_log_that_was_dropped_no_trace_is_left_anywhere(bed: Bed) -> None:
    log = bed.log("a")
    log.append(secret(1)).wait()
    bed.engine.seal()
    append(bed.log("b"), "stays")
    log.append(secret(1)).wait()
    bed.round()
    log.drop().wait()
    bed.round()
    bed.engine.seal()
    while bed.engine.maintain():
        pass
    for trace in traces(1):
        # Checkpoints have the first and the last key of each run, until the next complete one is written.
        assert [path for path in bed.grep(trace) if "checkpoints" not in path] == []
    assert bed.data("b") == ["stays"]


def test_the_record_before_a_deleted_one_becomes_the_last(bed: Bed) -> None:
    log = bed.log()
    append(log, "1", "2", "3", key="x")
    bed.round()
    log.delete(seqs=[3]).wait()
    bed.round()
    (last,) = bed.rows("latest")
    assert (last["seq"], last["data"]) == (2, "2")
    (key,) = bed.rows("keys")
    assert (key["first_seq"], key["last_seq"], key["count"]) == (1, 2, 2)
    log.delete(key="x").wait()
    bed.round()
    assert bed.rows("latest") == bed.rows("keys") == []


def test_what_is_restored_or_amended_is_as_the_log_has_it(bed: Bed) -> None:
    log = bed.log()
    install(log, text_schema("v"))
    append(log, "1", "2", "3", key="x")
    bed.round()
    log.hide(seqs=[1, 2]).wait()
    bed.round()
    assert bed.data() == ["3"]
    log.restore(seqs=[2]).wait()
    log.amend(3, b"\xff").wait()
    bed.round()
    assert [(row["seq"], row["data"], row["bytes"]) for row in bed.rows()] == [(2, "2", None), (3, None, b"\xff")]
    assert by_key(bed) == derived(bed.rows())
    # Hidden and restored between two rounds: nothing has happened.
    log.hide(seqs=[2]).wait()
    log.restore(seqs=[2]).wait()
    bed.round()
    assert [row["seq"] for row in bed.rows()] == [2, 3]
    assert [(row["seq"], row["_corrupt"]) for row in bed.typed("a")] == [(2, "2"), (3, "\ufffd")]


def test_what_was_deleted_is_not_restored(bed: Bed) -> None:
    log = bed.log()
    append(log, "1", "2", key="x")
    bed.round()
    log.delete(seqs=[1]).wait()
    log.restore(key="x").wait()
    bed.round()
    assert bed.data() == ["2"]


def test_what_was_restored_and_then_lost_to_a_cap_stays(bed: Bed) -> None:
    log = bed.log(cap_records=3)
    append(log, "1", "2", "3")
    bed.round()
    log.hide(seqs=[1]).wait()
    log.restore(seqs=[1]).wait()
    append(log, "4", "5")
    bed.round()
    assert bed.data() == ["1", "2", "3", "4", "5"]
    # And what is deleted goes, although the log has lost it long since.
    log.delete(before=2).wait()
    bed.round()
    assert bed.data() == ["2", "3", "4", "5"]


def test_an_event_on_a_source_does_not_concern_the_rows_of_a_fork(bed: Bed) -> None:
    source = bed.log("source")
    append(source, "s1", "s2", "s3", key="x")
    fork = bed.engine.fork("fork", source, 2).wait()
    append(fork, "f3", key="x")
    bed.round()
    source.delete(seqs=[3]).wait()
    bed.round()
    assert bed.data("source") == ["s1", "s2"]
    assert bed.data("fork") == ["f3"]


def test_events_from_before_the_lake_are_none_of_its_business(bed: Bed) -> None:
    log = bed.log()
    append(log, "1", "2")
    log.delete(seqs=[1]).wait()
    bed.engine.flush()
    result = bed.round()
    assert "erasing" not in result.records
    assert bed.table("records").progress()[PROGRESS] == bed.engine.log(NAME).head
    assert bed.data() == ["2"]


def test_a_file_without_such_records_stays_as_it_is(bed: Bed) -> None:
    log = bed.log()
    append(log, "1")
    bed.round()
    (before,) = bed.table("records").files()
    append(log, "2")
    bed.round()
    log.delete(seqs=[2]).wait()
    bed.round()
    assert [file.path for file in bed.table("records").files()] == [before.path]
    assert bed.data() == ["1"]


def test_missed_events_make_everything_be_compared(bed: Bed) -> None:
    log, capped, dropped = bed.log("a"), bed.log("capped", cap_records=2), bed.log("dropped")
    for each in (log, capped, dropped):
        install(each, text_schema("v"))
    append(log, "1", "2", "3", key="x")
    append(capped, "c1", "c2")
    append(dropped, "d")
    bed.round()
    append(capped, "c3")
    log.delete(seqs=[1]).wait()
    log.amend(2, b"two").wait()
    capped.delete(seqs=[2]).wait()
    dropped.drop().wait()
    events = bed.engine.log(NAME)
    # All that tells of it is gone, as if it had been too much to keep.
    events.configure(type(events.config)(durability="fsync", cap_records=1)).wait()
    append(bed.log("late"), "l1", "l2")
    bed.engine.log("late").delete(seqs=[1]).wait()
    bed.round()
    assert [problem[0] for problem in bed.heard.problems] == ["erasing"]
    assert bed.data("a") == ["two", "3"]
    # Nobody can say what became of c1: a cap may have taken it, or somebody may have deleted it before that.
    assert bed.data("capped") == ["c1", "c3"]
    assert bed.data("dropped") == []
    assert bed.data("late") == ["l2"]
    assert by_key(bed) == derived(bed.rows())
    check_typed(bed)
    bed.round()
    assert len(bed.heard.problems) == 1


def test_a_crash_before_the_old_files_are_removed_is_made_up_for(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bed.log()
    install(log, text_schema("v"))
    log.append(secret(1)).wait()
    append(log, "x")
    bed.round()
    log.delete(key="key-1").wait()
    with monkeypatch.context() as patch:
        patch.setattr(erasures, "purge", lambda round, table: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bed.round()
    assert bed.data() == ["x"]
    assert bed.grep(b"payload-1", "lake")
    bed.round()
    assert bed.grep(b"payload-1", "lake") == []
    bed.engine.flush()
    progress = bed.table("records").progress()
    assert progress[PURGED] == progress[PROGRESS] == bed.engine.log(NAME).head


def test_what_cannot_be_read_anew_is_told_and_not_kept(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bed.log()
    append(log, "1", "2")
    bed.engine.seal()
    bed.round()
    log.amend(2, b"two").wait()
    real = erasures.pieces_of

    def unreadable(*arguments: object) -> object:
        pieces = real(*arguments)  # type: ignore[arg-type]
        import msgspec

        return [msgspec.structs.replace(piece, path=f"{piece.path}-gone") for piece in pieces]

    monkeypatch.setattr(erasures, "pieces_of", unreadable)
    bed.round()
    assert bed.data() == ["1"]
    assert bed.heard.problems[0][:3] == ("erasing", "a", 2)
