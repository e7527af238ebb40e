"""Builds indexes in the background after a search ran out of time, so that the next search finds them.

One thread builds in small steps, one stream after the other: a search that arrives meanwhile gets its turn between two
steps.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Executor
from threading import Lock
from time import perf_counter
from typing import NamedTuple

from strandline.engine import Log
from strandline.engine.errors import EngineError
from strandline.query.config import SearchConfig
from strandline.query.index import Versions
from strandline.query.searcher import Searcher

log = logging.getLogger(__name__)

#: The maximum time of one step.
STEP_SECONDS = 0.25


class _Work(NamedTuple):
    log: Log
    config: SearchConfig
    versions: Versions


class Indexing:
    """Any thread may use it. ``thread`` runs one piece of work after the other."""

    def __init__(self, searcher: Searcher, thread: Executor) -> None:
        self._searcher = searcher
        self._thread = thread
        self._lock = Lock()
        self._waiting: deque[_Work] = deque()
        self._stopped = False

    def go_on(self, log: Log, config: SearchConfig, versions: Versions) -> None:
        """Index the log up to its current end, in the background."""
        with self._lock:
            if self._stopped or any(work.log is log for work in self._waiting):
                return
            if not self._waiting:
                # First: if no thread can be started, this raises, and no work is left waiting.
                self._thread.submit(self._run)
            self._waiting.append(_Work(log, config, versions))

    def look(self, log: Log, config: SearchConfig, versions: Versions) -> None:
        """Look up the index files of a log in the lake, in the background."""
        with self._lock:
            if not self._stopped:
                self._thread.submit(self._look, _Work(log, config, versions))

    def _look(self, work: _Work) -> None:
        try:
            self._searcher.refresh_status(*work)
        except EngineError as error:
            log.info("stopped looking up the index files of %r: %s", work.log, error)
        except Exception:
            log.exception("cannot look up the index files of %r", work.log)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                self._bring_up(work)
            except EngineError as error:
                log.info("stopped indexing %r: %s", work.log, error)
            except BaseException:  # the logs that wait must still get their turn
                log.exception("cannot index %r", work.log)
            self._done()

    def _next(self) -> _Work | None:
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def _done(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft()

    def _bring_up(self, work: _Work) -> None:
        head = work.log.head
        while not self._stopped:
            until = perf_counter() + STEP_SECONDS
            cover, _ = self._searcher.indexes.cover(work.log, work.config, work.versions, head, until)
            if cover.through >= head:
                return

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._waiting.clear()
