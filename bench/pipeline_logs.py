"""Rounds of the pipeline over many logs of which few have changed. Run it by itself:

    python -m bench.pipeline_logs [--profile] [--searchable PERCENT] LOGS...

Tasks run in this process, so that the figures show what the driver does: Spark adds the same to all of them. The
figures are seconds, with processor seconds in brackets.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from strandline.engine import Batch, Engine, Options
from strandline.engine.ownership import REGISTRY
from strandline.history.directory import DirectoryHistory, KnownLogs
from strandline.lake import status
from strandline.lake.location import Lake
from strandline.lake.reporter import StatusReporter
from strandline.lake.status import write_status
from strandline.pipeline.round import Round
from strandline.pipeline.run import collect_rarely, run_round
from strandline.pipeline.tasks import LocalWorkers
from strandline.schema.registry import Registry

#: The logs that change between two rounds, and the records that each gets.
MOVED, RECORDS = 10, 10
STEP = 500
ROUNDS = 3
SEARCH = {
    "schema": {"type": "object"},
    "search": {"fields": {"n": {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/n"}]}}},
}


class _Workers(LocalWorkers):
    """The stage of keys needs a shuffle."""

    parallel = 2

    def shuffle(self, spread: Any, gather: Any, items: Any, kind: Any, shared: Any, result: Any) -> list[Any]:
        parts: dict[str, list[bytes]] = {}
        for item in items:
            for destination, part in spread(item, shared):
                parts.setdefault(destination, []).append(part)
        return [gather(destination, found, shared) for destination, found in parts.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", type=int, nargs="+")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--searchable", type=int, default=5, help="percentage of logs with a search configuration")
    chosen = parser.parse_args()
    collect_rarely()
    Round.workers = property(lambda self: _Workers())  # type: ignore[assignment, method-assign]
    for count in chosen.logs:
        root = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        try:
            _measure(root, count, chosen.searchable, chosen.profile)
        finally:
            shutil.rmtree(root)


def _measure(root: Path, count: int, searchable: int, profile: bool) -> None:
    lake, known = Lake.at(str(root / "lake")), KnownLogs()
    with Engine.open(root / "data", Options(max_logs=0), background=False) as engine:
        search = Registry.empty("log").update(msgspec.json.encode(SEARCH), next_sequence=0).stored()
        for first in range(0, count, STEP):
            for number in range(first, min(first + STEP, count)):
                notes = {REGISTRY: search} if number % 100 < searchable else None
                engine.create(f"log-{number:07d}", notes=notes, batch=Batch.of(b'{"n":%d}' % number, "key"))
            engine.flush()
        engine.seal()
        seconds, used = _round(root, lake, known)
        print(f"{count:>8,} logs: first round {seconds:.2f} s, processor {used:.2f} s")
        figures = []
        for turn in range(ROUNDS):
            for number in range(MOVED):
                log = engine.log(f"log-{(turn * MOVED + number) * 97 % count:07d}")
                log.append(Batch([b'{"n":1}'] * RECORDS, ["key"] * RECORDS))
            engine.flush()
            if profile and turn == ROUNDS - 1:
                profiler = cProfile.Profile()
                profiler.enable()
                figures.append(_round(root, lake, known))
                profiler.disable()
                pstats.Stats(profiler).sort_stats("cumulative").print_stats(55)
            else:
                figures.append(_round(root, lake, known))
        shown = ", ".join(f"{seconds:.2f} ({used:.2f})" for seconds, used in figures)
        size = (root / "lake" / status.NAME).stat().st_size
        objects = sum(1 for each in (root / "lake").rglob("*") if each.is_file())
        print(f"{count:>8,} logs: {MOVED} moved: {shown} s; status.json {size:,} bytes; {objects:,} files in the lake")


def _round(root: Path, lake: Lake, known: KnownLogs) -> tuple[float, float]:
    """The time that passed, and the processor time."""
    reporter = StatusReporter(lambda each: write_status(lake, each), lambda: time.time_ns() // 1_000_000)
    begun, used = time.perf_counter(), time.process_time()
    history = DirectoryHistory(root / "data", known=known)
    try:
        with reporter.round():
            run_round(None, history, lake, reporter)  # type: ignore[arg-type]
    finally:
        history.close()
    return time.perf_counter() - begun, time.process_time() - used


if __name__ == "__main__":
    main()
