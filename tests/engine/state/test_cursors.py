"""Named positions in a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened

from strandline.engine import Config, Cursor, Engine, ManualClock, Options
from strandline.engine.errors import BadRequest, UnknownLog
from strandline.engine.testing.fault_disk import FaultDisk

CLASSES = ["ephemeral", "memory", "disk", "fsync"]


@pytest.mark.parametrize("durability", CLASSES)
def test_a_cursor_can_be_moved_and_dropped(tmp_path: Path, durability: str) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, durability=durability)
        assert log.cursors() == {}
        assert log.cursor("c") is None
        assert log.move_cursor("c", 7).wait() == Cursor(7, NOW)
        clock.advance(5)
        assert log.move_cursor("c", 3).wait() == Cursor(3, NOW + 5)
        assert log.move_cursor("ü", 0).wait() == Cursor(0, NOW + 5)
        assert log.cursor("c") == Cursor(3, NOW + 5)
        known = log.cursors()
        known.clear()
        assert log.cursors() == {"c": Cursor(3, NOW + 5), "ü": Cursor(0, NOW + 5)}
        assert log.drop_cursor("c").wait() is True
        assert log.drop_cursor("c").wait() is False
        assert log.cursors() == {"ü": Cursor(0, NOW + 5)}
        log.drop_cursor("ü").wait()
        assert engine.by_epoch[log.epoch].cursors is None


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("seal", [False, True])
def test_cursors_survive_restarts(tmp_path: Path, durability: str, seal: bool) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=durability)
        fill(log, "1", "2")
        log.move_cursor("kept", 2).wait()
        log.move_cursor("dropped", 1).wait()
        if seal:
            engine.seal()
        log.move_cursor("moved", 1).wait()
        log.drop_cursor("dropped").wait()
    for _ in range(2):
        with opened(tmp_path) as engine:
            assert engine.log("a").cursors() == {"kept": Cursor(2, NOW), "moved": Cursor(1, NOW)}


def test_on_a_careful_log_a_cursor_moves_when_it_is_durable(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(), clock=ManualClock(NOW), background=False)
    log = make(engine, durability="fsync")
    commit = log.move_cursor("c", 1)
    assert not commit.done
    assert log.cursor("c") is None
    commit.wait()
    engine = Engine.open(disk.power_cut(), Options(), clock=ManualClock(NOW), background=False)
    assert engine.log("a").cursor("c") == Cursor(1, NOW)


def test_cursors_go_with_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.move_cursor("c", 1).wait()
        log.drop().wait()
        for ask in (
            log.cursors,
            lambda: log.cursor("c"),
            lambda: log.move_cursor("c", 1),
            lambda: log.drop_cursor("c"),
        ):
            with pytest.raises(UnknownLog):
                ask()
        assert make(engine).cursors() == {}


@pytest.mark.parametrize("path", [("ephemeral", "disk"), ("disk", "ephemeral", "fsync"), ("fsync", "ephemeral")])
def test_cursors_stay_when_the_class_changes(tmp_path: Path, path: tuple[str, ...]) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=path[0])
        for at, durability in enumerate(path):
            log.configure(Config(durability=durability)).wait()  # type: ignore[arg-type]
            fill(log, "x")
            log.move_cursor(durability, at).wait()
        expected = log.cursors()
    with opened(tmp_path) as engine:
        assert engine.log("a").cursors() == expected


@pytest.mark.parametrize("name", ["", "x" * 513, "ü" * 257, "\ud800", 7])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        with pytest.raises(BadRequest):
            log.move_cursor(name, 1)
        with pytest.raises(BadRequest):
            log.drop_cursor(name)


@pytest.mark.parametrize("seq", [-1, 1 << 63, 1.0, True, "1"])
def test_a_bad_seq_is_refused(tmp_path: Path, seq: int) -> None:
    with opened(tmp_path) as engine, pytest.raises(BadRequest):
        make(engine).move_cursor("c", seq)
