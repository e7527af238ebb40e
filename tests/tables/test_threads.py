from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.tables_in_process import Vote

from strandline.engine import Engine
from strandline.tables import HookContext, Hooks, Item, Row, TableError, Tables, make_log

THREADS = 16
EACH = 25


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """All begin at once; what one raises is raised here."""
    gate = threading.Barrier(threads)

    def run(number: int) -> None:
        gate.wait(60)
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))


@pytest.fixture
def engine(tmp_path: Path):  # type: ignore[no-untyped-def]
    with Engine.open(tmp_path / "data") as engine:
        yield engine


def test_many_appenders_get_consecutive_seqs_and_one_row_per_key(engine: Engine) -> None:
    votes = Tables(engine, [make_log("vote", parent="room", schema=Vote)])["vote"]
    results: list[tuple[str, int, bool]] = []

    def work(number: int) -> None:
        for index in range(EACH):
            own, shared = f"own {number} {index}", f"shared {index}"
            for key in (own, shared):
                result = votes.append("r", Vote(number, key), idempotency_key=key).wait()
                row = votes.read(result.id)
                assert row is not None, "what was acknowledged can be read"
                assert row.idempotency_key == key
                results.append((key, result.seq, result.created))

    together(work)
    rows = votes.list_after("r", 0, limit=1000).rows
    assert [row.seq for row in rows] == list(range(1, (THREADS + 1) * EACH + 1))
    assert len({row.idempotency_key for row in rows}) == len(rows)
    where = {row.idempotency_key: row.seq for row in rows}
    assert all(where[key] == seq for key, seq, _ in results)
    assert sum(created for _, _, created in results) == len(rows)


def test_bulks_of_many_threads_are_each_in_one_piece(engine: Engine) -> None:
    votes = Tables(engine, [make_log("vote", parent="room", schema=Vote)])["vote"]

    def work(number: int) -> None:
        for index in range(5):
            bulk = votes.append_bulk("r", [Item(Vote(number), f"{number} {index} {n}") for n in range(4)]).wait()
            first = bulk.results[0].seq
            assert [result.seq for result in bulk.results] == list(range(first, first + 4))

    together(work)
    assert votes.counts("r", "optionIdx").counts == {str(number): 20 for number in range(THREADS)}


def test_of_many_edits_that_expect_the_same_one_is_made(engine: Engine) -> None:
    votes = Tables(engine, [make_log("vote", parent="room", schema=Vote)])["vote"]
    votes.append("r", Vote(0)).wait()

    def work(number: int) -> None:
        for _ in range(5):
            while True:
                row = votes.read("r:1")
                assert row is not None
                patch = {"optionIdx": row.payload["optionIdx"] + 1}
                try:
                    votes.update("r:1", patch, expected_updated_at=row.updated_at).wait()
                    break
                except TableError as error:
                    if error.code != "CONFLICT":
                        raise

    together(work, 4)
    row = votes.read("r:1")
    assert row is not None
    assert row.payload["optionIdx"] == 20
    assert [edit.previous["optionIdx"] for edit in votes.history("r:1")] == list(range(20))


def test_what_hooks_write_never_disagrees_with_what_set_them_off(engine: Engine) -> None:
    def tally(ctx: HookContext, row: Row) -> None:
        known = ctx.read("tally", "all:1")
        if known is None:
            ctx.append("tally", "all", {"votes": 1})
        else:
            ctx.update("tally", known.id, {"votes": known.payload["votes"] + 1})

    votes_log = make_log("vote", parent="room", schema=Vote, hooks=Hooks(after_append=tally))
    tables = Tables(engine, [votes_log, make_log("tally", parent="label", schema={"type": "object"})])
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            before = tables["vote"].list_after("r", 0, limit=1).head
            row = tables["tally"].read("all:1")
            after = tables["vote"].list_after("r", 0, limit=1).head
            assert before <= (0 if row is None else row.payload["votes"]) <= after

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        together(lambda number: [tables["vote"].append("r", Vote(number)).wait() for _ in range(10)] and None, 8)
        stop.set()
        watching.result(60)
    row = tables["tally"].read("all:1")
    assert row is not None
    assert row.payload == {"votes": 80}


def test_counts_read_while_rows_change_are_right_in_the_end(engine: Engine) -> None:
    votes = Tables(engine, [make_log("vote", parent="room", schema=Vote, soft_delete=True)])["vote"]

    def work(number: int) -> None:
        for index in range(10):
            result = votes.append("r", Vote(0)).wait()
            votes.update(result.id, {"optionIdx": number}).wait()
            if index % 3 == 0:
                votes.rm(result.id).wait()
            if index % 6 == 0:
                votes.restore(result.id).wait()
            assert votes.counts("r", "optionIdx").total > 0

    together(work, 6)
    assert votes.counts("r", "optionIdx").counts == {str(number): 8 for number in range(6)}
