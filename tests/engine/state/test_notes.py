"""Small named values that are kept with a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Appended, Batch, Config, Engine, ManualClock, Options, Producer
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadRequest, EngineClosed, ProducerFenced, ProducerGap, UnknownLog
from strandline.engine.journal.bodies import pack
from strandline.engine.state.notes import MAX_NOTES_BYTES, Notes, changed, check_changes
from strandline.engine.testing.fault_disk import FaultDisk
from strandline.engine.verify.directory_check import verify

CLASSES = ["ephemeral", "memory", "disk", "fsync"]
VALUES = {"text": "ü", "number": 7, "list": [1, [None, 2.5]], "map": {"a": {"b": b"bytes"}}, "no": False}


@pytest.mark.parametrize("durability", CLASSES)
def test_notes_are_changed_and_removed(tmp_path: Path, durability: str) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=durability)
        assert log.notes == {}
        log.note(VALUES).wait()
        assert log.notes == VALUES
        log.note({"text": None, "number": 8, "unknown": None}).wait()
        assert log.notes == {"number": 8} | {name: VALUES[name] for name in ("list", "map", "no")}
        log.note(dict.fromkeys(VALUES)).wait()
        assert log.notes == {}
        assert engine.by_epoch[log.epoch].notes is None


def test_what_a_change_leaves_alone_stays_the_same_object(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.note({"map": {"a": [1]}, "other": 1}).wait()
        before = log.notes
        assert log.notes is before
        log.note({"other": 2}).wait()
        assert log.notes is not before
        assert log.notes["map"] is before["map"]
        assert before == {"map": {"a": [1]}, "other": 1}
        with pytest.raises(TypeError):
            before["map"] = 1  # type: ignore[index]


def test_a_note_is_a_copy(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log, value = make(engine), {"a": (1, 2)}
        log.note({"n": value}).wait()
        value["b"] = (3,)
        assert log.notes == {"n": {"a": [1, 2]}}


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("seal", [False, True])
def test_notes_survive_restarts(tmp_path: Path, durability: str, seal: bool) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=durability)
        log.note({"kept": VALUES, "dropped": 1}).wait()
        log.append(Batch.of(b"1"), notes={"with": [1]}).wait()
        if seal:
            engine.seal()
        log.note({"dropped": None, "new": "n"}).wait()
    for _ in range(2):
        with opened(tmp_path) as engine:
            assert engine.log("a").notes == {"kept": VALUES, "with": [1], "new": "n"}
    assert verify(LocalDisk(tmp_path)).sound


@pytest.mark.parametrize("durability", CLASSES)
def test_notes_change_with_an_append(tmp_path: Path, durability: str) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=durability)
        commit = log.append(Batch.of(b"1"), notes={"closed": True})
        assert log.notes == {"closed": True}
        commit.wait()
        assert texts(log) == ["1"]


def test_a_repeated_append_changes_no_notes(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch.of(b"1"), idempotency_key="k", producer=Producer("p", 0, 0), notes={"n": 1}).wait()
        before = log.notes
        assert log.append(Batch.of(b"1"), idempotency_key="k", notes={"n": 2}).wait().deduped
        assert log.append(Batch.of(b"1"), producer=Producer("p", 0, 0), notes={"n": 3}).wait().deduped
        assert log.notes is before


@pytest.mark.parametrize("durability", CLASSES)
def test_a_producer_goes_on_with_a_note_as_with_an_append(tmp_path: Path, durability: str) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=durability)
        assert log.producer("p") is None
        log.append(Batch.of(b"1"), producer=Producer("p", 0, 0)).wait()
        assert log.note({"closed": True}, producer=Producer("p", 0, 1)).wait() == Appended(2, 1, NOW)
        assert log.note({"closed": False}, producer=Producer("p", 0, 1)).wait() == Appended(2, 1, NOW, True)
        assert log.notes == {"closed": True}
        with pytest.raises(ProducerGap):
            log.note({"closed": False}, producer=Producer("p", 0, 3))
        log.note({}, producer=Producer("p", 1, 0)).wait()
        with pytest.raises(ProducerFenced):
            log.note({"closed": False}, producer=Producer("p", 0, 2))
        state = log.producer("p")
        assert state is not None
        assert (state.epoch, state.seq, state.appended) == (1, 0, Appended(2, 1, NOW))
        assert log.append(Batch.of(b"2"), producer=Producer("p", 1, 1)).wait().first == 2
    if durability != "ephemeral":
        with opened(tmp_path) as engine:
            assert engine.log("a").producer("p") == (1, 1, Appended(2, 2, NOW))


def test_on_a_careful_log_a_note_shows_at_once_and_is_done_when_durable(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(), clock=ManualClock(NOW), background=False)
    log, told = make(engine, durability="fsync"), []
    log.listen(lambda log: told.append(dict(log.notes)))
    commit = log.note({"n": 1})
    assert (commit.done, log.notes, told) == (False, {"n": 1}, [])
    again = log.note({"n": 1}, producer=Producer("p", 0, 0))
    assert not again.done
    assert not log.note({"n": 1}, producer=Producer("p", 0, 0)).done
    commit.wait()
    assert told[0] == {"n": 1}
    engine = Engine.open(disk.power_cut(), Options(), clock=ManualClock(NOW), background=False)
    assert engine.log("a").notes == {"n": 1}


@pytest.mark.parametrize("durability", CLASSES)
def test_listeners_are_told_of_a_note(tmp_path: Path, durability: str) -> None:
    with opened(tmp_path) as engine:
        log, told = make(engine, durability=durability), []
        log.listen(lambda log: told.append(dict(log.notes)))
        log.note({"closed": True}).wait()
        assert told == [{"closed": True}]


def test_a_note_behind_an_append_that_waits_is_done_with_it(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="disk")
        appended = log.append(Batch([b"x"] * 1000))
        noted = log.note({"n": 1})
        assert (appended.done, noted.done) == (False, False)
        appended.wait()
        assert noted.done


@pytest.mark.parametrize("path", [("ephemeral", "disk"), ("disk", "ephemeral", "fsync"), ("fsync", "ephemeral")])
def test_notes_stay_when_the_class_changes(tmp_path: Path, path: tuple[str, ...]) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=path[0])
        for at, durability in enumerate(path):
            log.configure(Config(durability=durability)).wait()  # type: ignore[arg-type]
            fill(log, "x")
            log.note({durability: at}).wait()
            log.append(Batch.of(b"y"), notes={f"{durability} too": at}).wait()
        expected = log.notes
    with opened(tmp_path) as engine:
        assert engine.log("a").notes == expected


def test_notes_go_with_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.note({"n": 1}).wait()
        log.drop().wait()
        for ask in (lambda: log.note({"n": 2}), lambda: log.producer("p")):
            with pytest.raises(UnknownLog):
                ask()
        log = make(engine)
        assert log.notes == {}
    with pytest.raises(EngineClosed):
        log.note({"n": 1})


@pytest.mark.parametrize("name", ["", "x" * 65, "\ud800", 7])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        with pytest.raises(BadRequest):
            log.note({"good": 1, name: 1})
        with pytest.raises(BadRequest):
            log.append(Batch.of(b"1"), notes={name: 1})
        assert (log.notes, log.head) == ({}, 0)


@pytest.mark.parametrize("value", [object(), 1 << 70, "\ud800", {"a": object()}])
def test_a_value_that_cannot_be_written_is_refused(tmp_path: Path, value: object) -> None:
    with opened(tmp_path) as engine, pytest.raises(BadRequest, match="'n'"):
        make(engine).note({"n": value})


def test_a_value_that_holds_itself_is_refused(tmp_path: Path) -> None:
    value: list[object] = []
    value.append(value)
    with opened(tmp_path) as engine, pytest.raises(BadRequest):
        make(engine).note({"n": value})


def test_nothing_to_note_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as engine, pytest.raises(BadRequest):
        make(engine).note({})


def test_all_notes_of_a_log_together_are_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log, half = make(engine), b"x" * (MAX_NOTES_BYTES // 2)
        log.note({"a": half}).wait()
        for ask in (lambda: log.note({"b": half}), lambda: log.append(Batch.of(b"1"), notes={"b": half})):
            with pytest.raises(BadRequest, match="the limit"):
                ask()
        assert (list(log.notes), log.head) == (["a"], 0)
        log.note({"a": half + b"y" * 1000}).wait()
        log.note({"a": None, "b": half}).wait()
        assert list(log.notes) == ["b"]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), values, max_size=3)))
def test_changes_add_up(steps: list[dict[str, object]]) -> None:
    notes, expected = None, {}
    for changes in steps:
        before, notes = notes, changed(notes, check_changes(changes))
        expected = {name: value for name, value in (expected | changes).items() if value is not None}
        assert (notes.values if notes is not None else {}) == expected
        for name in expected.keys() - changes.keys():
            assert notes is not None
            assert before is not None
            assert notes.values[name] is before.values[name]
    assert Notes.of({name: Raw(pack(value)) for name, value in expected.items()}) == notes
