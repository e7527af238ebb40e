"""``strandline demo``: what the engine does, shown on a directory of its own. Ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from strandline.engine import Batch, Config, Engine, Log, Options
from strandline.engine.backup import backup, restore
from strandline.engine.care.verify import verify
from strandline.engine.disk import LocalDisk

#: What the killed writer has acknowledged before it is killed.
KILL_AFTER = 20_000
RECORDS = 200_000

WRITER = """
import sys
from strandline.engine import Batch, Config, Engine
engine = Engine.open(sys.argv[1])
log = engine.create("payments", Config(durability="disk")).wait()
while True:
    log.append(Batch([b'{"paid":%d}' % n for n in range(100)])).wait()
    print(log.head, flush=True)
"""


def demo_command() -> None:
    """Show appends, loss that is never silent, a killed writer, segments, backups: about ten seconds."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="strandline-demo-") as directory:
        _Tour(console, Path(directory)).run()
    console.print("\n[bold green]Nothing was lost.[/] The guide is in docs/architecture.md.")


class _Tour:
    def __init__(self, console: Console, directory: Path) -> None:
        self._console = console
        self._data = directory / "data"
        self._backups = directory / "backups"
        self._restored = directory / "restored"

    def run(self) -> None:
        with Engine.open(self._data, Options(keep_journal_ms=3_600_000)) as engine:
            orders = self._append(engine)
            self._evict(engine)
            self._delete(orders)
        self._kill()
        before = self._seal()
        self._back_up(before)
        self._verify()

    def _say(self, title: str, *lines: str) -> None:
        self._console.print(f"\n[bold cyan]{title}[/]")
        for line in lines:
            self._console.print(f"  {line}")

    def _append(self, engine: Engine) -> Log:
        orders = engine.create("orders", Config(durability="disk")).wait()
        started = time.perf_counter()
        for base in range(0, RECORDS, 1000):
            rows = range(base, base + 1000)
            data = [b'{"order":%d,"cents":%d}' % (row, row * 37 % 10_000) for row in rows]
            orders.append(Batch(data, keys=[f"customer-{row % 500}" for row in rows])).wait()
        seconds = time.perf_counter() - started
        page = orders.read(after=RECORDS - 1)
        (last,) = page
        self._say(
            "Append and read",
            f"{RECORDS:,} orders in batches of 1000, {RECORDS / seconds:,.0f} records/s, made here and now",
            f"the last one: seq {last.seq}, key {last.key}, {last.data.decode()}, caught up: {page.caught_up}",
        )
        return orders

    def _evict(self, engine: Engine) -> None:
        recent = engine.create("recent", Config(cap_records=3)).wait()
        recent.append(Batch([b"1", b"2", b"3", b"4", b"5"])).wait()
        page = recent.read(after=0)
        assert page.tombstone is not None
        lost = page.tombstone
        self._say(
            "Loss is never silent",
            "a log capped at 3 records got 5; a reader from the start is told before it gets the rest:",
            f"tombstone: seqs {lost.gap_from} to {lost.gap_to} are gone, reason {lost.reason!r}; then {page.seqs}",
        )

    def _delete(self, orders: Log) -> None:
        deleted = orders.delete(key="customer-7").wait()
        page = orders.read(after=0, limit=20)
        self._say(
            "Deleting on purpose is silent",
            f"all {deleted.count} orders of customer-7 deleted through the key index",
            f"seqs {page.seqs[:9]}: seq 8 is missing, tombstone: {page.tombstone}",
        )

    def _kill(self) -> None:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, self._data], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        acknowledged = 0
        while acknowledged < KILL_AFTER:
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split())])
        writer.wait()
        started = time.perf_counter()
        with Engine.open(self._data) as engine:
            seconds = time.perf_counter() - started
            found = engine.log("payments").state().count
        assert found >= acknowledged
        self._say(
            "kill -9",
            f"a process wrote payments until it was killed; {acknowledged:,} had been acknowledged",
            f"opened again in {seconds:.2f} s: {found:,} payments are there",
        )

    def _seal(self) -> int:
        with Engine.open(self._data, Options(keep_journal_ms=3_600_000)) as engine:
            engine.seal()
            moment = engine.now()
        (segment,) = (self._data / "segments").iterdir()
        with pa.memory_map(str(segment)) as file:
            table = pa.ipc.open_file(file).read_all()
        self._say(
            "History is Arrow",
            f"the journal became {segment.name}, {segment.stat().st_size / 1e6:.1f} MB for {table.num_rows:,} rows",
            f"any Arrow reader can open it; its columns: {', '.join(table.schema.names)}",
        )
        return moment

    def _back_up(self, moment: int) -> None:
        backup(str(self._data), str(self._backups))
        with Engine.open(self._data, Options(keep_journal_ms=3_600_000)) as engine:
            orders = engine.log("orders")
            while engine.now() <= moment:
                time.sleep(0.001)
            orders.delete(before=RECORDS + 1).wait()
            left = orders.state().count
        backup(str(self._data), str(self._backups))
        restore(str(self._backups), str(self._restored), at=moment)
        with Engine.open(self._restored) as engine:
            back = engine.log("orders").state().count
        self._say(
            "Backup and point-in-time restore",
            f"somebody deleted everything: {left} orders left in the live directory",
            f"restored to the moment before: {back:,} orders",
        )

    def _verify(self) -> None:
        report = verify(LocalDisk(self._data))
        self._say("Verify", f"every checksum and every promise: {len(report.problems)} problems")
