"""Indexes that a question ran out of time for are finished in the background."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from strandline.engine import Batch, Engine
from strandline.protocols.streams.index_builder import IndexBuilder
from strandline.query.config_parser import parse_search_config
from strandline.query.searcher import Searcher
from strandline.service.workers import Workers

FIELD = {"kind": "integer", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/n"}]}
CONFIG = parse_search_config({"fields": {"n": FIELD}})
VERSIONS = [(1, 1)]


def finish(indexing: IndexBuilder) -> None:
    """Wait until everything that was asked for until now is done."""
    done = Event()
    indexing._thread.submit(done.set)
    assert done.wait(30)


def test_what_was_left_out_is_indexed(tmp_path: Path) -> None:
    with Engine.open(tmp_path) as engine:
        log = engine.create("log").wait()
        log.append(Batch([b'{"n":%d}' % n for n in range(1000)])).wait()
        searcher = Searcher(1 << 20)
        indexing = IndexBuilder(searcher, Workers().in_order("indexing"))

        indexing.go_on(log, CONFIG, VERSIONS)
        indexing.go_on(log, CONFIG, VERSIONS)
        finish(indexing)

        assert searcher.held(log, CONFIG).through == 1000
        indexing.stop()


def test_a_log_that_was_dropped_is_let_go(tmp_path: Path) -> None:
    with Engine.open(tmp_path) as engine:
        gone, there = engine.create("gone").wait(), engine.create("there").wait()
        there.append(Batch([b'{"n":1}'])).wait()
        searcher = Searcher(1 << 20)
        indexing = IndexBuilder(searcher, Workers().in_order("indexing"))
        gone.drop().wait()

        indexing.go_on(gone, CONFIG, VERSIONS)
        indexing.go_on(there, CONFIG, VERSIONS)
        finish(indexing)

        assert searcher.held(there, CONFIG).through == 1
        indexing.stop()


def test_nothing_begins_once_it_has_stopped(tmp_path: Path) -> None:
    with Engine.open(tmp_path) as engine:
        log = engine.create("log").wait()
        searcher = Searcher(1 << 20)
        indexing = IndexBuilder(searcher, Workers().in_order("indexing"))
        indexing.stop()

        indexing.go_on(log, CONFIG, VERSIONS)

        assert len(searcher.indexes) == 0
