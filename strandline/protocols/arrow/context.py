"""The state that the handlers of the Arrow protocol share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from strandline.engine import Log
from strandline.engine.record import is_internal
from strandline.service.access import Access
from strandline.service.catalog import Catalog
from strandline.service.kernel import Kernel
from strandline.service.problems import FORBIDDEN, Refusal, log_not_found

T = TypeVar("T")


class RecordLimits(Protocol):
    """The size limits of one record, which are the same for every protocol."""

    @property
    def max_record_bytes(self) -> int: ...
    @property
    def max_meta_bytes(self) -> int: ...
    @property
    def max_meta_keys(self) -> int: ...
    @property
    def max_tag_bytes(self) -> int: ...
    @property
    def max_node_bytes(self) -> int: ...


class ArrowContext:
    """Created on the event loop's thread, after the engine is opened."""

    def __init__(self, kernel: Kernel, limits: RecordLimits) -> None:
        self.kernel = kernel
        self.limits = limits
        self.engine = kernel.engine
        self.hub = kernel.hub
        self.live = kernel.live
        self.workers = kernel.workers

    @property
    def directory(self) -> str:
        """The id of the data directory."""
        return self.engine.maintenance.manifest.id

    def log(self, name: str, access: Access) -> Log:
        """The log, if this API key may read it."""
        if is_internal(name):
            log = self.engine.find(name)
            if log is None:
                raise log_not_found(name)
            if not Catalog.visible(log, access, internal=True):
                raise Refusal(FORBIDDEN, f"{name!r} is an internal log; reading it requires the admin scope")
            return log
        log = self.kernel.catalog.find(name)
        if log is None or not Catalog.visible(log, access, internal=True):
            raise log_not_found(name)
        self.kernel.catalog.use(log)
        return log

    async def settled(self, log: Log) -> None:
        """Wait until everything that readers of the log can see now is durable."""
        await self.kernel.settled(log)

    def work(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Run ``work`` on a worker thread: it takes too long for the event loop."""
        return self.workers.bulk.run(work)
