"""The state that the handlers of the collections protocol share."""

from __future__ import annotations

from strandline.collections.collections import Collections
from strandline.collections.config import PUBLIC, Collection, CollectionsConfig
from strandline.collections.errors import CollectionError, queue_unavailable
from strandline.collections.events import OpenedTopic
from strandline.collections.paths import BoundCollection, DocumentPath
from strandline.collections.permissions import UNIDENTIFIED, Caller
from strandline.collections.pull import ElementReader
from strandline.collections.rate_limits import PUSH, RateLimiter
from strandline.collections.settings import REPLAY_WINDOW_MS
from strandline.delivery.hub import Hub
from strandline.engine import Log
from strandline.engine.errors import NotWritable, QuotaExceeded
from strandline.engine.ownership import media_type_of
from strandline.protocols.collections.authorization import Authorizer, address_of
from strandline.protocols.collections.errors import CollectionRefusal
from strandline.service.catalog import Catalog, check_append, holds_json
from strandline.service.http import Call
from strandline.service.kernel import Kernel
from strandline.service.log_config import TopicConfig, check_name, engine_config
from strandline.service.problems import Headers, Refusal


class CollectionsContext:
    """Created on the event loop's thread, after the engine is opened."""

    def __init__(self, kernel: Kernel, config: CollectionsConfig, authorizer: Authorizer) -> None:
        self.config = config
        self.settings = config.settings
        self.kernel = kernel
        self.hub: Hub = kernel.hub
        self.authorizer = authorizer
        topics = CatalogTopics(kernel.catalog)
        self.collections = Collections(kernel.engine, config, topics=topics, check_name=self._check_name)
        self.documents = self.collections.documents
        self.regular_documents = self.collections.regular_documents
        self.rate_limiter = RateLimiter(config)
        self.reader = ElementReader()
        self.workers = kernel.workers
        kernel.catalog.reservations.append(self._reserved)

    def _reserved(self, name: str) -> str | None:
        """Why a log of this name cannot be created: only the collection creates the logs of its documents."""
        for index in self.collections.namespaces.values():
            owner = index.owner_of(name)
            if owner is not None:
                return f"the name belongs to the collection {owner.name!r}; use POST /push"
        return None

    def _check_name(self, name: str) -> None:
        """Raise CollectionError (``not_a_document``) if the log of a new document would take a name of a table."""
        try:
            self.kernel.catalog.check_name(name, owner=self._reserved)
        except NotWritable as error:
            message = f"the document {name!r} cannot be created: {error.why}"
            raise CollectionError("not_a_document", message) from None

    async def caller_of(self, call: Call) -> Caller:
        """The caller of a request for several documents, or for none. One without a valid certificate has no roles."""
        try:
            caller = self.authorizer.identify(call, self.hub.wall())
            return caller if isinstance(caller, Caller) else await caller
        except (CollectionRefusal, CollectionError):
            return UNIDENTIFIED

    def has_accepted(self, path: DocumentPath, caller: Caller) -> bool:
        """Whether the same signed push was accepted before, and is still remembered."""
        name: str | None = path.key
        if not path.collection.is_stored:
            announcer = path.bound.announcer
            name = None if announcer is None else announcer.topic_for(path.params)
        log = None if name is None else self.kernel.engine.find(name)
        return log is not None and caller.request_id is not None and log.remembers(caller.request_id)

    def check_rate(self, bound: BoundCollection, action: str, caller: Caller, call: Call, now: int) -> None:
        """Count a request. Raises CollectionError (``rate_limited``) if it exceeds a limit."""
        if self.rate_limiter.limits(bound.namespace, bound.collection.name, action):
            self._count(bound, action, caller.identity, call, now)

    def check_push_rate(self, path: DocumentPath, caller: Caller, call: Call, now: int) -> None:
        """Count a push. One that was accepted before counts for the address only: it may be a recording, whose sender
        must not use up the limit of its author. Raises CollectionError (``rate_limited``)."""
        bound = path.bound
        if self.rate_limiter.limits(bound.namespace, bound.collection.name, PUSH):
            self._count(bound, PUSH, "" if self.has_accepted(path, caller) else caller.identity, call, now)

    def _count(self, bound: BoundCollection, action: str, identity: str, call: Call, now: int) -> None:
        address = address_of(call, self.settings.trusted_proxy_hops)
        self.rate_limiter.check(bound.namespace, bound.collection.name, action, identity, address, now)

    @staticmethod
    def cache_control(collection: Collection) -> Headers:
        """How long caches may keep an answer to a pull."""
        if collection.cache_duration_ms is None:
            return ()
        private = "" if PUBLIC in collection.read_roles else "private, "
        return ((b"cache-control", f"{private}max-age={collection.cache_duration_ms // 1000}".encode()),)


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
