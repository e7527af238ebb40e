"""What the handlers of this face share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from strandline.delivery.watch import Feeds
from strandline.engine import Log
from strandline.service.catalog import Catalog
from strandline.service.http import Call
from strandline.service.kernel import Kernel
from strandline.service.parameters import name_of
from strandline.service.problems import log_not_found

T = TypeVar("T")


class Surroundings(NamedTuple):
    """What the console tells of the server around it."""

    keys_required: bool
    has_pipeline: Callable[[], bool]
    is_serving: Callable[[], bool]
    uptime_ms: Callable[[], int]
    #: How many connections are open.
    connections: Callable[[], int]


class ConsoleContext:
    """Made on the loop's thread, once the engine is open."""

    def __init__(self, kernel: Kernel, surroundings: Surroundings) -> None:
        self.kernel = kernel
        self.engine = kernel.engine
        self.hub = kernel.hub
        self.surroundings = surroundings
        self.live = kernel.live
        self.feeds = Feeds(kernel.hub, kernel.pressure)
        self.workers = kernel.workers

    def log(self, call: Call) -> Log:
        """The log that the path names, for somebody who wants to look at it. Looking on does not count as using it."""
        name = name_of(call)
        log = self.kernel.catalog.find(name)
        if log is None or not Catalog.visible(log, call.access, internal=True):
            raise log_not_found(name)
        return log

    def work(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """What ``work`` gives, which takes too long for the loop."""
        return self.workers.bulk.run(work)
