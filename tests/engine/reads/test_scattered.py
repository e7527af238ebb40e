"""Single records from all over a log: what readers see, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from strandline.engine import Batch, Config, Engine, Log, ManualClock
from strandline.engine.reads.single_records import payloads_at
from strandline.engine.segments import writer


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(writer, "BLOCK_BYTES", 200)
    with Engine.open(tmp_path / "data", clock=ManualClock(1_700_000_000_000), background=False) as opened:
        yield opened


def append(log: Log, count: int) -> None:
    log.append(Batch([f"payload {log.head + number + 1}".encode() for number in range(count)])).wait()


def payload(seq: int) -> bytes:
    return f"payload {seq}".encode()


def test_records_come_from_segments_and_from_the_tail_in_order(engine: Engine) -> None:
    log, other = engine.create("log").wait(), engine.create("a neighbour").wait()
    append(other, 7)
    append(log, 100)
    engine.seal()
    append(log, 50)
    engine.seal()
    append(log, 10)
    wanted = [1, 2, 57, 99, 100, 101, 150, 151, 160]
    assert list(payloads_at(log, wanted)) == [(seq, payload(seq)) for seq in wanted]
    assert list(payloads_at(log, [*wanted, 161, 500])) == [(seq, payload(seq)) for seq in wanted]
    assert list(payloads_at(log, [])) == []


def test_what_is_not_there_is_left_out_and_what_was_amended_is_as_it_is_now(engine: Engine) -> None:
    log = engine.create("log").wait()
    append(log, 60)
    engine.seal()
    append(log, 20)
    log.delete(seqs=[5, 70]).wait()
    log.hide(seqs=[6, 71]).wait()
    log.amend(7, b"other").wait()
    log.amend(72, b"another").wait()
    found = dict(payloads_at(log, range(1, 81)))
    assert (found[7], found[72]) == (b"other", b"another")
    assert set(range(1, 81)) - found.keys() == {5, 6, 70, 71}


def test_records_are_found_where_others_have_gone_from_their_segment(engine: Engine) -> None:
    log = engine.create("log").wait()
    pick = Random(4)
    for _ in range(4):
        append(log, 40)
        log.delete(seqs=sorted(pick.sample(range(log.head - 39, log.head + 1), 25))).wait()
        engine.seal()
    engine.maintain()
    standing = log.read(0, 1000).seqs
    assert [seq for seq, _ in payloads_at(log, range(1, 161))] == standing
    assert all(data == payload(seq) for seq, data in payloads_at(log, standing))


def test_a_fork_gives_what_it_shares_and_what_is_its_own(engine: Engine) -> None:
    log = engine.create("log").wait()
    append(log, 30)
    engine.seal()
    fork = engine.fork("fork", log, 20, Config()).wait()
    fork.append(Batch([b"own"])).wait()
    assert list(payloads_at(fork, [3, 20, 21])) == [(3, payload(3)), (20, payload(20)), (21, b"own")]


def test_a_segment_that_is_merged_while_somebody_reads_is_no_matter(engine: Engine) -> None:
    log = engine.create("log").wait()
    for _ in range(4):
        append(log, 30)
        engine.seal()
    found = payloads_at(log, [1, 40, 80, 120])
    assert next(found) == (1, payload(1))
    while engine.maintain():
        pass
    assert list(found) == [(40, payload(40)), (80, payload(80)), (120, payload(120))]
