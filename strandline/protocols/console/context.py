"""What the handlers of the console share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from strandline.collections import Collections
from strandline.delivery.subscriptions import Subscriptions
from strandline.delivery.watch import Feeds
from strandline.engine import Log
from strandline.service.catalog import Catalog
from strandline.service.http import Call
from strandline.service.kernel import Kernel
from strandline.service.parameters import name_of
from strandline.service.problems import log_not_found
from strandline.service.request_meter import RequestTotals
from strandline.tables import Tables

T = TypeVar("T")


class Surroundings(NamedTuple):
    """Facts about the server that the console shows."""

    keys_required: bool
    has_pipeline: Callable[[], bool]
    is_serving: Callable[[], bool]
    uptime_ms: Callable[[], int]
    #: The number of open connections.
    connections: Callable[[], int]
    #: The requests since the start. Call it on the event loop's thread.
    requests: Callable[[], RequestTotals]
    #: Where a process on this machine reaches the server over plain HTTP; empty if it cannot.
    url: Callable[[], str]
    #: Call it on the event loop's thread.
    subscriptions: Callable[[], Subscriptions]
    #: The data directory, and the lake if it is a directory; None if unknown.
    data_directory: Path | None = None
    lake_directory: Path | None = None


class ConsoleContext:
    """Created on the event loop's thread after the engine is open."""

    def __init__(self, kernel: Kernel, surroundings: Surroundings, tables: Tables, collections: Collections) -> None:
        self.kernel = kernel
        self.tables = tables
        self.collections = collections
        self.engine = kernel.engine
        self.hub = kernel.hub
        self.surroundings = surroundings
        self.live = kernel.live
        self.feeds = Feeds(kernel.hub, kernel.pressure)
        self.workers = kernel.workers

    def log(self, call: Call) -> Log:
        """The log that the path names, for viewing. Viewing does not count as a use of the log."""
        name = name_of(call)
        log = self.kernel.catalog.find(name)
        if log is None or not Catalog.visible(log, call.access, internal=True):
            raise log_not_found(name)
        return log

    def work(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Run ``work``, which takes too long for the event loop, on a thread."""
        return self.workers.bulk.run(work)
