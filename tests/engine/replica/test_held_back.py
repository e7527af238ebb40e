"""What readers and writers see while a record waits for the replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.engines import fill, make, texts
from support.replicas import FaultyStore, served

from strandline.engine import Append, Batch, Delete, Engine, ForwardedCopy, Log, Producer
from strandline.engine.errors import BadRequest
from strandline.engine.reads.payloads import read_payloads
from strandline.engine.reads.span import span_of
from strandline.engine.reads.view import view_of
from strandline.engine.state.parts import Budget


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with served(tmp_path / "data", FaultyStore()) as engine:
        yield engine


@pytest.fixture
def log(engine: Engine) -> Log:
    """With two records that readers see."""
    log = make(engine, "r", durability="replicated")
    fill(log, "1", "2", key="a")
    return log


def ship(engine: Engine) -> None:
    assert engine.replica is not None
    engine.replica.ship_all()


def hold(log: Log, *data: str, **options: Any) -> Any:
    """Append records that are durable here and wait for the replica."""
    commit = log.append(Batch([text.encode() for text in data], keys=["a"] * len(data)), **options)
    log.engine.flush()
    assert not commit.done
    return commit


def _payloads(log: Log) -> int:
    found = read_payloads(log, 0, 100, 1 << 20)
    assert found is not None
    return found.records


READS: dict[str, Callable[[Log], object]] = {
    "read": lambda log: log.read().seqs,
    "resident": lambda log: getattr(log.read_resident(), "seqs", None),
    "tail": lambda log: log.read(after=1).seqs,
    "head of a page": lambda log: log.read().head,
    "end": lambda log: (log.read(after=2).seqs, log.read(after=2).caught_up, log.read(after=2).next_after),
    "key": lambda log: log.read(key="a").seqs,
    "prefix": lambda log: log.read(key_prefix="a").seqs,
    "since": lambda log: log.read(since=0).seqs,
    "back": lambda log: log.read_back().seqs,
    "back before": lambda log: log.read_back(before=100).seqs,
    "latest": lambda log: log.read_latest().seqs,
    "find": lambda log: log.find_key("a"),
    "head": lambda log: log.head,
    "state": lambda log: (log.state().head, log.state().earliest),
    "sync": lambda log: log.sync().wait() if log.book.held == 0 else log.head,
    "view": lambda log: view_of(log).head,
    "payloads": _payloads,
    "span": lambda log: span_of(log, 0, Budget(100, 1 << 20))[:4],
}


@pytest.mark.parametrize("name", READS)
def test_no_read_shows_a_record_that_waits(engine: Engine, log: Log, name: str) -> None:
    read = READS[name]
    before = read(log)
    commit = hold(log, "3", "4")
    assert read(log) == before
    ship(engine)
    assert commit.wait().first == 3
    assert log.read().seqs == [1, 2, 3, 4]
    if name not in ("state", "tail", "end"):
        assert read(log) != before


def test_a_page_in_the_middle_of_what_waits_is_empty(engine: Engine, log: Log) -> None:
    hold(log, "3", "4", "5")
    page = log.read(after=2)
    assert (page.seqs, page.caught_up, page.next_after, page.head) == ([], True, 2, 2)
    ship(engine)
    assert texts(log, after=2) == ["3", "4", "5"]


def test_sealed_records_are_held_back_too(engine: Engine, log: Log) -> None:
    commit = hold(log, "3")
    engine.seal()
    assert texts(log) == ["1", "2"]
    assert log.read_back().seqs == [1, 2]
    assert log.read_latest().seqs == [2]
    assert not commit.done
    ship(engine)
    assert texts(log) == ["1", "2", "3"]


def test_records_are_shown_in_the_order_of_the_chunks(engine: Engine, log: Log) -> None:
    first = hold(log, "3")
    second = hold(log, "4")
    position = engine.journal.written
    engine.flushing.shipped(position - 1)
    assert (first.done, second.done) == (True, False)
    assert texts(log) == ["1", "2", "3"]
    engine.flushing.shipped(position)
    assert texts(log) == ["1", "2", "3", "4"]


def test_a_fork_shares_only_what_readers_see(engine: Engine, log: Log) -> None:
    hold(log, "3")
    with pytest.raises(BadRequest, match="can be forked at the seqs 0 to 2, not at 3"):
        engine.fork("fork", log, 3)
    fork = engine.fork("fork", log, 2)
    engine.flush()
    assert not fork.done
    own = engine.log("fork")
    own.append(Batch.of(b"own"))
    engine.flush()
    assert texts(own) == ["1", "2"]
    ship(engine)
    assert fork.done
    assert texts(own) == ["1", "2", "own"]
    assert texts(log) == ["1", "2", "3"]


def test_a_repeated_key_waits_with_the_first_append(engine: Engine, log: Log) -> None:
    first = hold(log, "3", idempotency_key="k")
    again = log.append(Batch.of(b"3"), idempotency_key="k")
    engine.flush()
    assert not again.done
    ship(engine)
    assert first.wait().first == again.wait().first == 3
    assert again.wait().deduped
    assert texts(log) == ["1", "2", "3"]


def test_a_repeated_append_of_a_producer_waits_with_the_first(engine: Engine, log: Log) -> None:
    producer = Producer("p", 0, 0)
    first = hold(log, "3", producer=producer)
    again = log.append(Batch.of(b"3"), producer=producer)
    engine.flush()
    assert not again.done
    ship(engine)
    assert first.wait().first == again.wait().first == 3


def test_a_repeated_append_in_a_transaction_waits_with_the_first(engine: Engine, log: Log) -> None:
    disk = make(engine, "d")
    hold(log, "3", idempotency_key="k")
    commit = engine.change_all([Append(log, Batch.of(b"3"), "k"), Append(disk, Batch.of(b"x"))])
    engine.flush()
    assert not commit.done
    ship(engine)
    assert [each.first for each in commit.wait()] == [3, 1]


def test_sync_waits_for_what_readers_see_later(engine: Engine, log: Log) -> None:
    hold(log, "3")
    commit = log.sync()
    engine.flush()
    assert not commit.done
    ship(engine)
    assert commit.wait() == 2
    assert log.sync().done


def test_a_transaction_over_several_durabilities_is_done_when_the_replica_has_it(engine: Engine, log: Log) -> None:
    others = [make(engine, name, durability=name) for name in ("disk", "fsync", "memory")]
    commit = engine.append_all([Append(each, Batch.of(b"x")) for each in (log, *others)])
    engine.flush()
    assert not commit.done
    assert texts(log) == ["1", "2"]
    ship(engine)
    assert [each.first for each in commit.wait()] == [3, 1, 1, 1]
    assert texts(log) == ["1", "2", "x"]


def test_logs_of_other_durabilities_do_not_wait(engine: Engine, log: Log) -> None:
    others = [make(engine, name, durability=name) for name in ("disk", "fsync", "memory", "ephemeral")]
    hold(log, "3")
    for other in others:
        commit = other.append(Batch.of(b"x"))
        engine.flush()
        assert commit.done
        assert texts(other) == ["x"]


def test_a_deletion_waits_for_the_replica(engine: Engine, log: Log) -> None:
    commit = log.delete(seqs=[1])
    engine.flush()
    assert not commit.done
    ship(engine)
    assert commit.wait().count == 1
    assert texts(log) == ["2"]


def test_a_record_can_be_deleted_while_it_waits(engine: Engine, log: Log) -> None:
    hold(log, "3", "4")
    step = engine.change_all([Delete(log, seqs=[3]), Append(log, Batch.of(b"5"))])
    engine.flush()
    assert texts(log) == ["1", "2"]
    ship(engine)
    assert step.done
    assert texts(log) == ["1", "2", "4", "5"]


def test_cursors_and_notes_wait_for_the_replica(engine: Engine, log: Log) -> None:
    commits: list[Any] = [log.move_cursor("c", 2), log.note({"n": 1}), log.drop_cursor("c")]
    engine.flush()
    assert not any(commit.done for commit in commits)
    ship(engine)
    assert all(commit.done for commit in commits)
    assert log.notes == {"n": 1}


def test_copies_wait_for_the_replica(engine: Engine, log: Log) -> None:
    source = make(engine, "source")
    fill(source, "x")
    commit = engine.forward(source, [ForwardedCopy(log, "c", 1, [(1, 1)])])
    engine.flush()
    assert not commit.done
    assert texts(log) == ["1", "2"]
    ship(engine)
    assert commit.done
    assert texts(log) == ["1", "2", "x"]


def test_listeners_are_called_when_readers_see_more(engine: Engine, log: Log) -> None:
    heads: list[int] = []
    stop = log.listen(lambda told: heads.append(told.head))
    hold(log, "3")
    assert set(heads) <= {2}
    ship(engine)
    assert heads[-1] == 3
    stop()


def test_evicted_records_do_not_uncover_those_that_wait(engine: Engine) -> None:
    log = make(engine, "small", durability="replicated", cap_records=2)
    fill(log, "1", "2")
    hold(log, "3", "4", "5")
    page = log.read()
    assert page.seqs == []
    assert page.head == 2
    assert log.read_back().seqs == []
    state = log.state()
    assert (state.head, state.earliest, state.evict_floor) == (2, 3, 3)
    ship(engine)
    assert texts(log, after=2) == ["4", "5"]


def test_a_full_log_counts_what_waits(engine: Engine) -> None:
    log = make(engine, "full", durability="replicated", cap_records=3, discard="reject")
    fill(log, "1", "2")
    hold(log, "3")
    assert log.room() == (0, (1 << 63) - log.state().size)
