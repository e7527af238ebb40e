"""Two drivers on one lake at the same time: whatever the order in which they come to their steps, the lake is what the
logs are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import round_process
from support.lake_rounds import Bed, append, by_key, check_typed, derived, install, text_schema
from support.local_tasks import work_here
from support.object_store import object_store

from strandline.cli.spark import Lines
from strandline.history.directory import DirectoryHistory
from strandline.lake.fence import Fence, LakeInUse, take_fence
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.lake.table import TableMoved, TableSnapshot
from strandline.pipeline import records
from strandline.pipeline import run as pipeline_run
from strandline.pipeline.round import Round
from strandline.pipeline.run import ATTEMPTS, run_round


def check(bed: Bed) -> None:
    expected = [
        (name, record.seq, record.key, record.data.decode())
        for name in bed.engine.names()
        if not name.startswith("__")
        for record in bed.engine.log(name).read(0, 1000)
    ]
    rows = bed.rows()
    assert [(row["log"], row["seq"], row["key"], row["data"]) for row in rows] == expected
    assert by_key(bed) == derived(rows)
    check_typed(bed)
    assert bed.heard.problems == []


class Baton:
    """Lets two threads take turns of so many steps each; when the turns are over, one after the other."""

    def __init__(self, turns: list[int]) -> None:
        self._plan = (bool(place % 2) for place, steps in enumerate(turns) for _ in range(steps))
        self._changed = threading.Condition()
        self._living = ["one", "other"]
        self._turn = self._next()

    def _next(self) -> str:
        chosen = "other" if next(self._plan, False) else "one"
        return chosen if chosen in self._living else next(iter(self._living), "")

    def step(self) -> None:
        """Called by a driver before it does something that others can see."""
        name = threading.current_thread().name
        if name not in ("one", "other"):
            return
        with self._changed:
            self._turn = self._next()
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._turn == name, 30)

    def run(self, rounds: dict[str, Callable[[], None]]) -> dict[str, BaseException]:
        """What ended in an error."""
        errors: dict[str, BaseException] = {}

        def run(name: str) -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: self._turn == name, 30)
            try:
                rounds[name]()
            except BaseException as error:
                errors[name] = error
            with self._changed:
                self._living.remove(name)
                self._turn = self._next()
                self._changed.notify_all()

        threads = [threading.Thread(target=run, args=(name,), name=name, daemon=True) for name in rounds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        return errors


@contextmanager
def stepping(baton: Baton) -> Iterator[None]:
    """Drivers wait for the baton before they look at a table, before and after a commit, and before they remove
    files."""

    def before(real: Any) -> Any:
        def called(*args: Any, **named: Any) -> Any:
            baton.step()
            return real(*args, **named)

        return called

    def around(real: Any) -> Any:
        def called(*args: Any, **named: Any) -> Any:
            baton.step()
            try:
                return real(*args, **named)
            finally:
                baton.step()

        return called

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableSnapshot, "__init__", before(TableSnapshot.__init__))
        patch.setattr(TableSnapshot, "commit", around(TableSnapshot.commit))
        patch.setattr(Lake, "create", around(Lake.create))
        patch.setattr(Lake, "remove", before(Lake.remove))
        yield


changes = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "delete", "hide", "amend", "seal", "schema", "drop"]),
        st.sampled_from("ab"),
        st.sampled_from("xy"),
    ),
    min_size=1,
    max_size=6,
)


def change(bed: Bed, number: int, what: str, name: str, key: str) -> None:
    log = bed.engine.find(name) or bed.log(name)
    if what == "append":
        append(log, f'{{"v":"{number}-first"}}', f"{number}-second", key=key)
    elif what == "schema":
        if "registry" not in log.notes:
            install(log, text_schema("v"))
        else:
            log.note({"registry": None}).wait()
    elif what == "drop":
        log.drop().wait()
    elif what == "seal":
        bed.engine.seal()
    elif what == "amend":
        seqs = [record.seq for record in log.read(0, 1000)]
        if seqs:
            log.amend(seqs[-1], f"amended {number}".encode()).wait()
    else:
        getattr(log, what)(key=key).wait()


@settings(deadline=None, max_examples=12)
@given(changes, st.booleans(), changes, st.lists(st.integers(1, 30), min_size=2, max_size=8), st.booleans())
def test_two_drivers_in_any_order_leave_the_lake_as_the_logs_are(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[tuple[str, str, str]],
    begun: bool,
    second: list[tuple[str, str, str]],
    turns: list[int],
    are_marked: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        work_here(patch)
        patch.setattr("strandline.pipeline.table_upkeep.FILES_PER_TIER", 3)
        if not are_marked:
            patch.setattr(Fence, "mark_done", lambda fence: None)
        bed = Bed(tmp_path_factory.mktemp("story"))
        try:
            for number, each in enumerate(first):
                change(bed, number, *each)
            if begun:
                bed.round()
            for number, each in enumerate(second, 100):
                change(bed, number, *each)
            baton = Baton(turns)
            with stepping(baton):
                errors = baton.run({name: lambda: round_of(bed.path, bed.lake) for name in ("one", "other")})
            assert len(errors) < 2, "the driver that came last is not disturbed"
            assert all(isinstance(error, LakeInUse) for error in errors.values()), errors
            check(bed)
            bed.round()
            check(bed)
        finally:
            bed.close()


def round_of(path: Path, lake: Lake) -> None:
    history = DirectoryHistory(path / "data")
    try:
        run_round(None, history, lake, Silent())  # type: ignore[arg-type]
    finally:
        history.close()


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


class TestAnotherEngine:
    """Somebody optimizes tables while the pipeline is at work."""

    def disturb(self, bed: Bed, patch: pytest.MonkeyPatch, times: int, name: str = "") -> list[str]:
        """Before each of the first commits, the table is put together by another engine."""
        real = TableSnapshot.commit
        disturbed: list[str] = []

        def commit(snapshot: TableSnapshot, **changes: Any) -> int:
            if snapshot.exists and len(disturbed) < times and snapshot.table.name.startswith(name):
                disturbed.append(snapshot.table.name)
                real(snapshot.table.snapshot(), progress={"another engine": len(disturbed)})
                snapshot.table.open().optimize.compact()
            return real(snapshot, **changes)

        patch.setattr(TableSnapshot, "commit", commit)
        return disturbed

    @pytest.mark.parametrize("table", ["records", "tables/a"])
    def test_a_round_is_planned_again(self, bed: Bed, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
        log = bed.log()
        install(log, text_schema("v"))
        for number in range(3):
            append(log, f'{{"v":"{number}"}}', key="x")
            bed.round()
        append(log, "new", key="y")
        log.delete(seqs=[1]).wait()
        disturbed = self.disturb(bed, monkeypatch, ATTEMPTS - 1, table)
        bed.round()
        assert len(disturbed) == ATTEMPTS - 1
        check(bed)

    def test_it_gives_up_when_that_does_not_end(self, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
        append(bed.log(), "1")
        bed.round()
        append(bed.engine.log("a"), "2")
        self.disturb(bed, monkeypatch, 100)
        with pytest.raises(LakeInUse, match=f"planned {ATTEMPTS} times .*records was changed"):
            bed.round()
        monkeypatch.undo()
        work_here(monkeypatch)
        bed.round()
        check(bed)


def test_two_processes_at_once_on_an_object_store(tmp_path: Path) -> None:
    """Each of them is a driver with several commits per table. One is told that the other has the lake, or comes to its
    end before the other begins."""
    bed = Bed(tmp_path)
    try:
        for name in "ab":
            log = bed.log(name)
            install(log, text_schema("v"))
            for number in range(4):
                append(log, f"{name}{number}", f"{name}{number}+", key=f"key-{number % 2}")
        with object_store("lake") as options:
            bed.lake = Lake.at("s3://lake/some/where", **options)
            command = [
                sys.executable,
                round_process.__file__,
                str(tmp_path / "data"),
                bed.lake.url,
                json.dumps(options),
            ]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            drivers = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
                for _ in range(2)
            ]
            try:
                for driver in drivers:
                    assert driver.stdout is not None
                    assert driver.stdout.readline() == "ready\n"
                for driver in drivers:
                    assert driver.stdin is not None
                    driver.stdin.write("\n")
                    driver.stdin.flush()
                said = sorted(driver.communicate(timeout=60)[0].strip() for driver in drivers)
            finally:
                for driver in drivers:
                    driver.kill()
                    driver.wait()
            assert said[0] == "done"
            assert said[1] in ("done", "in use")
            check(bed)
    finally:
        bed.close()


def test_a_driver_that_is_taken_over_says_so_and_ends_with_an_exit_code_of_its_own(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(bed.log(), "1", key="x")
    real = records.run

    def taken_over(round: Round) -> None:
        with take_fence(bed.lake, lambda: 0) as other:
            assert other.number == 2
        real(round)

    monkeypatch.setattr(records, "run", taken_over)
    monkeypatch.setattr(pipeline_run, "open_session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    job = pipeline_run.PipelineJob(
        path=str(bed.path / "data"), url="", key=None, cold="", lake=bed.lake.url, mode="once", interval=0,
        master="local[1]", remote=None, conf={}, logs=(), prefix="",
    )  # fmt: skip
    with pytest.raises(LakeInUse, match=f"was taken over by process {os.getpid()}"):
        pipeline_run.run(job, Lines(), print)
    monkeypatch.setattr(records, "run", real)
    pipeline_run.run(job, Lines(), print)
    check(bed)


def test_the_next_version_is_made_and_no_other(bed: Bed) -> None:
    append(bed.log(), "1")
    bed.round()
    table = bed.table("records")
    one, other = table.snapshot(), table.snapshot()
    version = one.commit(progress={"a": 1})
    assert version == other.version + 1
    with pytest.raises(TableMoved):
        other.commit(progress={"b": 1})
    assert "b" not in table.progress()
