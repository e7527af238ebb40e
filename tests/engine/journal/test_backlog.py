"""The budget for unsealed records: appends are refused beyond it, and a start needs no more than it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest
from support.engines import make, opened, texts

from strandline.engine import Append, Batch, Engine, Options
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BatchTooLarge, SealingBehind
from strandline.engine.journal.backlog import MAX_COPIED, default_budget
from strandline.engine.journal.file import journal_indexes, journal_path
from strandline.engine.operations.forward import ForwardedCopy
from strandline.engine.operations.transaction import Amend
from strandline.engine.process import memory_limit
from strandline.engine.testing.fault_disk import Crashed, FaultDisk
from strandline.engine.verify.directory_check import verify

BUDGET = 100_000
BATCH = Batch([b"x" * 1000] * 10)


def fill_budget(engine: Engine, name: str = "a") -> int:
    """Append until it is refused; returns how many batches were taken."""
    log = engine.log(name)
    taken = accepted(lambda: log.append(BATCH).wait())
    assert engine.backlog.size <= BUDGET
    return taken


def accepted(change: Callable[[], object]) -> int:
    """Repeat a change until it is refused; returns how often it was taken."""
    for taken in range(10_000):
        try:
            change()
        except SealingBehind:
            return taken
    raise AssertionError("nothing was refused")


def test_appends_are_refused_at_the_budget_and_taken_once_it_is_sealed(tmp_path: Path) -> None:
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        log = make(engine)
        taken = fill_budget(engine)
        assert taken == 9
        written = engine.journal.written
        with pytest.raises(SealingBehind):
            log.append(BATCH)
        assert engine.journal.written == written
        assert (engine.stats().journal_bytes, engine.stats().refused) == (written, 2)
        assert engine.maintain()
        assert engine.backlog.size == 0
        assert (engine.stats().rounds, engine.stats().round_bytes) == (1, written)
        assert fill_budget(engine) == 9
        assert log.state().count == 180
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        assert engine.backlog.size > 90_000
        assert engine.log("a").state().count == 180


def test_every_way_to_add_records_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        log, other = make(engine), make(engine, "b")
        fill_budget(engine)
        for change in (
            lambda: engine.create("c", batch=BATCH),
            lambda: engine.fork("c", log, 1, batch=BATCH),
            lambda: engine.append_all([Append(other, BATCH)]),
            lambda: engine.change_all([Amend(log, 1, b"y" * 10_000)]),
            lambda: log.amend(1, b"y" * 10_000),
        ):
            with pytest.raises(SealingBehind):
                change()
        assert engine.find("c") is None
        assert other.state().count == 0
        assert texts(log, limit=1) == ["x" * 1000]


def test_what_frees_space_and_bookkeeping_go_on_up_to_the_reserve(tmp_path: Path) -> None:
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        log, own = make(engine), make(engine, "__leases__:a")
        fill_budget(engine)
        log.append(Batch.of(b"x" * (BUDGET - engine.backlog.size))).wait()
        with pytest.raises(SealingBehind):
            log.append(Batch.of(b"y"))
        log.delete(seqs=[1]).wait()
        log.move_cursor("reader", 5).wait()
        log.note({"closed": True}).wait()
        own.append(Batch.of(b"event")).wait()
        assert accepted(lambda: log.move_cursor("reader", 5)) > 100
        reserve = BUDGET // 8
        assert BUDGET < engine.backlog.size < BUDGET + reserve + 1000
        for change in (
            lambda: log.delete(seqs=[2]),
            lambda: own.append(Batch.of(b"event")),
            lambda: log.note({"a": 1}),
        ):
            with pytest.raises(SealingBehind):
                change()
        engine.maintain()
        log.delete(seqs=[2]).wait()
        log.drop().wait()


def test_forwarding_waits_and_loses_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        source, dest = make(engine), make(engine, "b")
        make(engine, "c")
        fill_budget(engine)
        engine.log("c").append(Batch.of(b"x" * (BUDGET - engine.backlog.size))).wait()
        copy = ForwardedCopy(dest, "router", source.head, ((1, source.head),))
        with pytest.raises(SealingBehind):
            engine.forward(source, [copy])
        assert (dest.head, source.cursor("router")) == (0, None)
        engine.maintain()
        engine.forward(source, [copy]).wait()
        assert dest.state().count == source.state().count


def test_copies_have_a_bound_of_their_own(tmp_path: Path) -> None:
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        source = make(engine)
        source.append(BATCH).wait()
        dests = [make(engine, f"dest-{n}") for n in range(10)]
        copies = [ForwardedCopy(dest, dest.name, 10, ((1, 10),)) for dest in dests]
        # Every round copies 100,000 bytes.
        assert accepted(lambda: engine.forward(source, copies).wait()) == MAX_COPIED + 1
        assert engine.backlog.size < BUDGET
        engine.maintain()
        assert engine.backlog.copied == 0


def test_a_batch_larger_than_the_budget_never_fits(tmp_path: Path) -> None:
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        log = make(engine)
        with pytest.raises(BatchTooLarge):
            log.append(Batch.of(b"x" * (BUDGET + 1)))
        log.append(Batch.of(b"x" * 30)).wait()
        # One that needs nearly all of it asks for a round, however little is unsealed.
        with pytest.raises(SealingBehind):
            log.append(Batch.of(b"x" * BUDGET))
        assert engine.maintain()
        log.append(Batch.of(b"x" * BUDGET)).wait()


def test_ephemeral_logs_are_not_in_the_journal_and_not_refused(tmp_path: Path) -> None:
    with opened(tmp_path, unsealed_bytes=BUDGET) as engine:
        make(engine)
        log = make(engine, "b", durability="ephemeral")
        fill_budget(engine)
        log.append(BATCH).wait()


def test_writers_that_outrun_sealing_never_pass_the_bounds(tmp_path: Path) -> None:
    budget, writers, batches = 2_000_000, 4, 60
    acknowledged: list[list[int]] = [[] for _ in range(writers)]
    sizes: list[int] = []
    rounds: list[int] = []
    options = Options(unsealed_bytes=budget, journal_bytes=200_000, flush_interval_ms=1)
    with Engine.open(tmp_path, options) as engine:
        log = make(engine)

        def write(own: list[int]) -> None:
            deadline = monotonic() + 60
            while len(own) < batches and monotonic() < deadline:
                try:
                    own.append(log.append(Batch([b"x" * 1000] * 100)).wait().first)
                except SealingBehind:
                    sleep(0.002)

        threads = [threading.Thread(target=write, args=(own,)) for own in acknowledged]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            sizes.append(engine.backlog.size)
            rounds.append(engine.stats().round_bytes)
            sleep(0.001)
        assert engine.stats().refused
        assert max(sizes) <= budget + 1000
        assert 0 < max(rounds) <= budget + 1000
        files = [engine.disk.size(journal_path(index)) for index in journal_indexes(engine.disk)]
        # Files are of bounded size even while rounds run: one may grow between two flushes.
        assert max(files) < budget
    with Engine.open(tmp_path, options) as engine:
        firsts = {first for own in acknowledged for first in own}
        assert len(firsts) == writers * batches
        assert engine.log("a").state().count == 100 * writers * batches
    assert verify(LocalDisk(tmp_path)).problems == []


def several_files(path: Path | FaultDisk, files: int = 8) -> int:
    """A directory with unsealed journal files of about 100,000 bytes each; returns how many records are in them."""
    for number in range(files):
        with opened(path) as engine:
            log = make(engine) if number == 0 else engine.log("a")
            for _ in range(10):
                log.append(BATCH, idempotency_key=None).wait()
            log.append(Batch.of(b"last"), idempotency_key=f"key-{number}").wait()
            log.delete(seqs=[log.head - 3]).wait()
    return files * 100


def test_a_start_with_a_lowered_budget_seals_in_rounds(tmp_path: Path) -> None:
    left = several_files(tmp_path)
    with opened(tmp_path, unsealed_bytes=300_000) as engine:
        assert len(engine.store.ids()) >= 3
        assert engine.recovered.replayed_bytes <= 300_000
        log = engine.log("a")
        assert log.state().count == left
        assert [log.remembers(f"key-{number}") for number in range(8)] == [True] * 8
        assert sum(len(page) for page in pages(log)) == left
        assert log.append(BATCH).wait().first == 8 * 101 + 1
        engine.seal()
        assert len(journal_indexes(engine.disk)) == 1
    assert verify(LocalDisk(tmp_path)).problems == []
    with opened(tmp_path) as engine:
        assert engine.log("a").state().count == left + 10


def pages(log):  # type: ignore[no-untyped-def]
    after = 0
    while True:
        page = log.read(after, 100)
        yield page
        if page.caught_up:
            return
        after = page.next_after


@pytest.mark.parametrize("kind", ["write", "sync", "rename"])
def test_a_start_that_cannot_seal_holds_everything_in_memory(tmp_path: Path, kind: str) -> None:
    left = several_files(tmp_path)
    disk = FaultDisk(tmp_path)
    disk.fail_at(disk.calls_of(kind) + 1, errno.ENOSPC, kind=kind)  # type: ignore[arg-type]
    with opened(disk, unsealed_bytes=300_000) as engine:
        assert engine.log("a").state().count == left
        assert len(engine.store.ids()) == 0
        engine.seal()
    with opened(tmp_path) as engine:
        assert engine.log("a").state().count == left


@pytest.mark.parametrize("end", ["power cut", "kill"])
def test_a_crash_anywhere_in_a_start_that_seals_loses_nothing(tmp_path: Path, end: str) -> None:
    stage = FaultDisk(tmp_path / "stage")
    left = several_files(stage, files=4)
    crashed = True
    point = 0
    while crashed:
        point += 1
        disk = stage.power_cut()
        disk.crash_after(point)
        crashed = False
        try:
            with opened(disk, unsealed_bytes=300_000):
                pass
        except Crashed:
            crashed = True
        disk = disk.power_cut(1) if end == "power cut" else disk.process_kill()
        with opened(disk, unsealed_bytes=300_000) as engine:
            assert engine.recovered.losses == [], point
            assert engine.log("a").state().count == left, point
            assert sum(len(page) for page in pages(engine.log("a"))) == left, point
    assert point > 20


def test_the_default_goes_by_the_memory(tmp_path: Path) -> None:
    assert 64 << 20 <= default_budget() <= 512 << 20
    physical = memory_limit(tmp_path / "none", tmp_path)
    membership = tmp_path / "cgroup"
    for path, name in (("memory/a/b", "memory.limit_in_bytes"), ("a/b", "memory.max")):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / name).write_text("9223372036854771712" if "limit" in name else "max")
        (tmp_path / path).parent.joinpath(name).write_text("1000000\n")
    for line in ("4:memory:/a/b", "0::/a/b"):
        membership.write_text(f"3:cpu:/\n{line}\n")
        assert memory_limit(membership, tmp_path) == 1_000_000
    membership.write_text("4:memory:/elsewhere\n")
    assert memory_limit(membership, tmp_path) == physical
