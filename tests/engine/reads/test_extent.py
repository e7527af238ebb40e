from __future__ import annotations

from pathlib import Path

from strandline.engine import Batch, Config, Engine
from strandline.engine.reads.status import EngineExtent, extent_of


def test_it_grows_with_the_records_of_all_logs(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        assert extent_of(engine).records == 0
        a, b = engine.create("a").wait(), engine.create("b").wait()
        a.append(Batch([b"1", b"2"])).wait()
        b.append(Batch.of(b"3")).wait()
        before = extent_of(engine)
        assert before.records == 3
        a.append(Batch.of(b"4")).wait()
        after = extent_of(engine)
        assert (after.records, after.written > before.written) == (4, True)


def test_it_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        engine.create("a").wait().append(Batch([b"1", b"2"])).wait()
        before = extent_of(engine)
    with Engine.open(tmp_path, background=False) as engine:
        after = extent_of(engine)
        assert (after.records, after.erasures) == (before.records, before.erasures)


def test_what_is_kept_on_the_side_and_what_no_restart_brings_back_does_not_count(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        engine.create("__metrics__").wait().append(Batch.of(b"1")).wait()
        engine.create("fleeting", Config(durability="ephemeral")).wait().append(Batch.of(b"1")).wait()
        assert extent_of(engine)._replace(written=0) == EngineExtent()


def test_another_registry_makes_another_number(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("a").wait()
        before = extent_of(engine)
        log.note({"registry": b"{}"}).wait()
        after = extent_of(engine)
        assert after.registries != before.registries
        log.note({"else": 7}).wait()
        assert extent_of(engine).registries == after.registries
