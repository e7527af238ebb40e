"""Several changes of several logs in one step."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.engines import fill, make, opened, texts

from strandline.engine import Amend, Append, Batch, Delete, Deleted, Hide, Restore
from strandline.engine.errors import BadRequest, LogFull, RecordTooLarge, UnknownSeq
from strandline.engine.operations.erasures import NAME, read_erasure


def test_changes_of_every_kind_are_made_in_one_step_and_give_what_each_gives_by_itself(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        rows, told = make(engine, "rows"), make(engine, "told")
        fill(rows, "1", "2", "3", "4")
        rows.hide(seqs=[4]).wait()
        results = engine.change_all(
            [
                Amend(rows, 1, b"one"),
                Append(told, Batch.of(b"changed"), ts=5),
                Hide(rows, seqs=[2]),
                Restore(rows, seqs=[4]),
                Delete(rows, before=1, seqs=[1]),
                Delete(rows, seqs=[3]),
            ]
        ).wait()
        assert [results[0], *results[2:]] == [None, Deleted(1, 1), Deleted(1, 1), Deleted(0, 0), Deleted(1, 1)]
        assert (results[1].first, results[1].last) == (1, 1)
        assert texts(rows) == ["one", "4"]
        assert told.read().ts == [5]
    with opened(tmp_path) as engine:
        assert texts(engine.log("rows")) == ["one", "4"]
        assert texts(engine.log("told")) == ["changed"]


def test_a_record_of_a_step_cannot_be_changed_in_it(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        with pytest.raises(UnknownSeq):
            engine.change_all([Append(log, Batch.of(b"1")), Amend(log, 1, b"x")])
        engine.change_all([Append(log, Batch.of(b"1")), Hide(log, before=10)]).wait()
        assert texts(log) == ["1"]


def test_when_one_change_cannot_be_made_none_is(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log, full = make(engine, "log"), make(engine, "full", cap_records=1, discard="reject")
        fill(log, "1")
        fill(full, "x")
        written = engine.journal.written
        for last, error in (
            (Amend(log, 7, b"x"), UnknownSeq),
            (Append(full, Batch.of(b"y")), LogFull),
            (Hide(log), BadRequest),
            (Delete(log, seqs=[-1]), BadRequest),
            (Amend(log, 1, b"x" * (engine.options.max_record_bytes + 1)), RecordTooLarge),
        ):
            with pytest.raises(error):
                engine.change_all([Append(log, Batch.of(b"2")), Hide(log, seqs=[1]), last])
        assert engine.journal.written == written
        assert texts(log) == ["1"]
        assert log.next_seq == 2


def test_everything_of_a_step_shows_together_once_it_is_durable(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        careful, quick = make(engine, "careful", durability="fsync"), make(engine, "quick")
        fill(careful, "1", "2")
        fill(quick, "1")
        commit = engine.change_all([Hide(careful, seqs=[1]), Amend(quick, 1, b"one"), Append(quick, Batch.of(b"2"))])
        assert not commit.done
        assert (texts(careful), texts(quick)) == (["1", "2"], ["1"])
        assert quick.coming_count == 2
        commit.wait()
        assert (texts(careful), texts(quick)) == (["2"], ["one", "2"])


def test_all_changes_of_a_step_are_told_in_one_write_with_them(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        a, b = make(engine, "a"), make(engine, "b")
        fill(a, "1", "2")
        fill(b, "1")
        engine.change_all([Hide(a, seqs=[1]), Amend(b, 1, b"x"), Delete(a, seqs=[2]), Append(b, Batch.of(b"2"))]).wait()
        engine.flush()
        events = [read_erasure(record.data) for record in engine.log(NAME).read()]
        assert [(event.log, event.kind, event.seqs) for event in events] == [
            ("a", "hide", [1]),
            ("b", "amend", [1]),
            ("a", "delete", [2]),
        ]


def test_an_ephemeral_log_can_be_part_of_a_step(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log, kept = make(engine, "log", durability="ephemeral"), make(engine, "kept")
        fill(log, "1", "2")
        engine.change_all([Hide(log, seqs=[1]), Append(log, Batch.of(b"3")), Append(kept, Batch.of(b"k"))]).wait()
        assert texts(log) == ["2", "3"]
    with opened(tmp_path) as engine:
        assert texts(engine.log("kept")) == ["k"]
        assert engine.log("log").read().tombstone is not None


def test_too_many_changes_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        batch = Batch.of(msgspec.json.encode(1))
        with pytest.raises(BadRequest, match="the limit is 65533"):
            engine.change_all([Append(log, batch)] * 65_534)
        assert log.head == 0
