"""Removing records: deletes by key and by position, and eviction from a log that is at its cap."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count as numbers
from pathlib import Path

from bench.measure import Effort, Row, Sample, in_rounds, repeated, through, timed
from bench.workload import PlainFile, batches, directory, fill, keyed_batches, quiet_engine
from strandline.engine import Config, Engine, Log

#: A delete is journaled as a frame of about this many bytes.
FRAME = b"x" * 80
#: The maximum seconds of a turn of deletes by key; the next turn continues with other keys.
KEYED_TURN = 1.0

KEY_FLOOR = "dict of key to seqs, dead ones into a set, one writev"


def run(root: Path, effort: Effort) -> Iterator[Row]:
    with directory(root, "change") as path:
        for records, keys in ((10_000, 100), (1_000_000, 1000)):
            for sealed in (False, True):
                for prefix in (False, True):
                    yield from _delete_by_key(path, effort, effort.scaled(records, 10_000), keys, sealed, prefix)
        for sealed in (False, True):
            for batch in (1, 100):
                yield _evict(path, effort, sealed, batch)
        for sealed in (False, True):
            yield _delete_before(path, effort, sealed)


# --- by key ------------------------------------------------------------------------------------------------


def _delete_by_key(root: Path, effort: Effort, records: int, keys: int, sealed: bool, prefix: bool) -> Iterator[Row]:
    """Deletes all records of a small log; on a large log, each round deletes other keys."""
    names = [f"key-{number:03d}" for number in range(keys)]
    # A prefix without the last digit matches ten keys.
    chosen = sorted({name[:-1] for name in names}) if prefix else names
    random.Random(7).shuffle(chosen)
    small = records <= 10_000
    turns = [chosen if small else chosen[number :: effort.rounds] for number in range(effort.rounds)]
    remaining = {"work": iter(turns), "floor": iter(turns)}
    with directory(root, "engine") as path, quiet_engine(path) as engine, PlainFile(root / "plain") as file:
        logs = (_keyed_log(engine, number, records, names, sealed) for number in numbers())
        mirrors = (_Mirror(records, names) for _ in numbers())
        if not small:
            log, mirror = next(logs), next(mirrors)

        def work() -> Sample:
            return _each(_deleting(next(logs) if small else log, prefix), next(remaining["work"]))

        def floor() -> Sample:
            plain = next(mirrors) if small else mirror
            return _each(lambda key: plain.delete(key, prefix, file), next(remaining["floor"]))

        rounds = in_rounds(work, floor, effort.rounds)
    where = "sealed" if sealed else "tail"
    what = "prefix" if prefix else "key"
    name = f"delete by {what}, {where}, {keys} keys in {records:,} records"
    yield rounds.row("change", name, "calls/s", KEY_FLOOR)
    yield rounds.row("change", name, "records/s", KEY_FLOOR, scale=records / len(chosen))


def _keyed_log(engine: Engine, number: int, records: int, names: list[str], sealed: bool) -> Log:
    log = engine.create(f"keyed-{number}").wait()
    for batch in keyed_batches(records, names):
        log.append(batch)
    if sealed:
        engine.seal()
    # The first delete builds the index of the tail or opens the segment, and later ones reuse it.
    log.delete(key="no such key").wait()
    return log


def _deleting(log: Log, prefix: bool) -> Callable[[str], object]:
    if prefix:
        return lambda key: log.delete(prefix=key).wait()
    return lambda key: log.delete(key=key).wait()


def _each(delete: Callable[[str], object], keys: list[str]) -> Sample:
    return through(lambda at: delete(keys[at]), iter(range(len(keys))), 1, KEYED_TURN)


class _Mirror:
    """The floor of deleting by key: the least that has to be looked up and recorded."""

    def __init__(self, records: int, names: list[str]) -> None:
        self._seqs: dict[str, list[int]] = {name: [] for name in names}
        seq = 0
        for batch in keyed_batches(records, names):
            assert batch.keys is not None
            for key in batch.keys:
                seq += 1
                assert key is not None
                self._seqs[key].append(seq)
        self._sorted = sorted(self._seqs)
        self._dead: set[int] = set()

    def delete(self, key: str, prefix: bool, file: PlainFile) -> None:
        file.write((FRAME,))
        if not prefix:
            self._dead.update(self._seqs[key])
            return
        at = bisect_left(self._sorted, key)
        while at < len(self._sorted) and self._sorted[at].startswith(key):
            self._dead.update(self._seqs[self._sorted[at]])
            at += 1


# --- by position -------------------------------------------------------------------------------------------


def _evict(root: Path, effort: Effort, sealed: bool, count: int) -> Row:
    """Appends to a full log: each evicts as many records as it adds."""
    cap = effort.scaled(100_000, 5_000)
    source = batches(64, count)
    with directory(root, "engine") as path, quiet_engine(path) as engine, PlainFile(root / "plain") as file:
        number = 0

        def work() -> Sample:
            nonlocal number
            number += 1
            log = _full_log(engine, f"capped-{number}", cap, sealed)
            # At most as many as the log holds, so that the oldest record stays in the tail, or in a segment.
            return repeated(lambda: log.append(next(source)).wait(), count, effort.turn, cap // count)

        def floor() -> Sample:
            kept = deque(range(cap))

            def one() -> None:
                data = next(source).data
                file.write(data)
                kept.extend(range(len(data)))
                for _ in data:
                    kept.popleft()

            return repeated(one, count, effort.turn, cap // count)

        rounds = in_rounds(work, floor, effort.rounds)
    where = "sealed" if sealed else "tail"
    records = "1 record" if count == 1 else f"{count} records"
    name = f"append of {records} to a log at its cap of {cap:,}, evicting from {where}"
    return rounds.row("change", name, "records/s", "writev, deque")


def _full_log(engine: Engine, name: str, cap: int, sealed: bool) -> Log:
    log = engine.create(name, Config(cap_records=cap)).wait()
    fill(engine, name, cap)
    if sealed:
        engine.seal()
    log.append(next(batches(64, 1))).wait()
    return log


def _delete_before(root: Path, effort: Effort, sealed: bool) -> Row:
    """Deletes the oldest 500 records of a log at a time."""
    records, step = effort.scaled(200_000, 10_000), 500
    with directory(root, "engine") as path, quiet_engine(path) as engine, PlainFile(root / "plain") as file:
        number = 0

        def work() -> Sample:
            nonlocal number
            number += 1
            fill(engine, f"log-{number}", records)
            if sealed:
                engine.seal()
            log = engine.log(f"log-{number}")
            return timed(
                records // step,
                lambda: [log.delete(before=seq + 1).wait() for seq in range(step, records + 1, step)],
            )

        def floor() -> Sample:
            kept = list(range(records))

            def all() -> None:
                for _ in range(records // step):
                    file.write((FRAME,))
                    del kept[:step]

            return timed(records // step, all)

        rounds = in_rounds(work, floor, effort.rounds)
    where = "sealed" if sealed else "tail"
    return rounds.row(
        "change", f"delete by before, {step} records each, {where}", "calls/s", "del list[:n], one writev"
    )
