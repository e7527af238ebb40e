"""The state that the handlers of the collections protocol share."""

from __future__ import annotations

from strandline.collections.collections import Collections
from strandline.collections.config import CollectionsConfig
from strandline.collections.errors import CollectionError, queue_unavailable
from strandline.collections.events import OpenedTopic
from strandline.collections.paths import BoundCollection
from strandline.collections.permissions import UNIDENTIFIED, Caller
from strandline.collections.pull import ElementReader
from strandline.collections.rate_limits import RateLimiter
from strandline.collections.settings import REPLAY_WINDOW_MS
from strandline.delivery.hub import Hub
from strandline.engine import Log
from strandline.engine.errors import NotWritable, QuotaExceeded
from strandline.engine.ownership import media_type_of
from strandline.protocols.collections.authorization import Authorizer, address_of
from strandline.protocols.collections.errors import Refused
from strandline.service.catalog import Catalog, check_append, holds_json
from strandline.service.http import Call
from strandline.service.kernel import Kernel
from strandline.service.log_config import TopicConfig, check_name, engine_config
from strandline.service.problems import Refusal


class CollectionsContext:
    """Created on the event loop's thread, after the engine is opened."""

    def __init__(self, kernel: Kernel, config: CollectionsConfig, authorizer: Authorizer) -> None:
        self.config = config
        self.settings = config.settings
        self.kernel = kernel
        self.hub: Hub = kernel.hub
        self.authorizer = authorizer
        self.collections = Collections(kernel.engine, config, topics=CatalogTopics(kernel.catalog))
        self.documents = self.collections.documents
        self.rate_limiter = RateLimiter(config)
        self.reader = ElementReader()
        self.workers = kernel.workers
        kernel.catalog.reservations.append(self._reserved)

    def _reserved(self, name: str) -> str | None:
        """Why a log of this name cannot be created: only the collection creates the logs of its documents."""
        for index in self.collections.namespaces.values():
            owner = index.owner_of(name)
            if owner is not None:
                return f"the name belongs to the collection {owner.name!r}; append with POST /push"
        return None

    async def caller_of(self, call: Call) -> Caller:
        """The caller of a request for several documents, or for none. One without a valid certificate has no roles."""
        try:
            caller = self.authorizer.identify(call, self.hub.wall())
            return caller if isinstance(caller, Caller) else await caller
        except (Refused, CollectionError):
            return UNIDENTIFIED

    def check_rate(self, bound: BoundCollection, action: str, caller: Caller, call: Call, now: int) -> None:
        """Count a request. Raises CollectionError (``rate_limited``) if it exceeds a limit."""
        name = bound.collection.name
        if self.rate_limiter.limits(bound.namespace, name, action):
            address = address_of(call, self.settings.trusted_proxy_hops)
            self.rate_limiter.check(bound.namespace, name, action, caller.identity, address, now)


class CatalogTopics:
    """The topics of queue events are logs of the server: they count against its limits, and may be queues."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def open(self, name: str) -> OpenedTopic:
        catalog, created = self._catalog, None
        try:
            log = catalog.find(name)
            if log is None:
                check_name(name)
                config = engine_config(name, TopicConfig(idempotency_window_ms=REPLAY_WINDOW_MS), "log")
                log, created = catalog.create(name, config)
            if not holds_json(log):
                raise NotWritable(name, f"it holds {media_type_of(log.config)}")
            check_append(log)
        except (NotWritable, QuotaExceeded, Refusal) as error:
            raise queue_unavailable(str(error)) from None
        return OpenedTopic(log, created)

    def discard(self, log: Log) -> None:
        self._catalog.unmake(log)
