"""Where a request comes from, as far as that can be known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strandline.delivery.hub import Hub
from strandline.engine import Engine
from strandline.protocols.collections.admission import Admission
from strandline.protocols.collections.catalogue import Catalogue, Entry
from strandline.protocols.collections.config import AppendOnly, Collection, CollectionsConfig
from strandline.protocols.collections.documents import Documents
from strandline.protocols.collections.elements import Reader
from strandline.protocols.collections.events import Announcing
from strandline.protocols.collections.permissions import Caller, hidden_fields
from strandline.protocols.collections.problems import invalid_path, no_such_path, regular_document
from strandline.protocols.collections.rate_limits import Rates
from strandline.protocols.collections.schema import ObjectSchema
from strandline.protocols.collections.template import key_is_safe, segments_of, values_fit
from strandline.protocols.http import Call
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import capped
from strandline.protocols.turns import Turns


def address_of(call: Call, trusted_proxy_hops: int) -> str:
    """The address of the client; empty if it is unknown.

    What a client writes into ``X-Forwarded-For`` itself must not count: it is the entry that the outermost of the
    trusted proxies has added, the so-manieth from the right. A header with fewer entries did not come through them.
    """
    if trusted_proxy_hops:
        forwarded = call.head.headers.get(b"x-forwarded-for", b"").decode("latin-1")
        hops = [hop.strip() for hop in forwarded.split(",") if hop.strip()]
        if len(hops) >= trusted_proxy_hops:
            return hops[-trusted_proxy_hops]
    return call.peer


# --- What the handlers of this face share ---------------------------------------------------------------------------

#: Paths that are remembered.
MAX_PLACES = 16_384


class Place(NamedTuple):
    """A document that a path leads to, whether or not it is there."""

    entry: Entry
    rules: AppendOnly
    params: Mapping[str, str]
    key: str
    #: Whether it may be the key of a document at all.
    is_safe: bool

    @property
    def collection(self) -> Collection:
        return self.entry.collection


class CollectionsContext:
    """Made on the loop's thread, once the engine is open."""

    def __init__(self, topics: Context, config: CollectionsConfig, admission: Admission) -> None:
        self.config = config
        self.settings = config.settings
        self.engine: Engine = topics.engine
        self.hub: Hub = topics.hub
        self.admission = admission
        self.rates = Rates(config)
        self.documents = Documents(topics.engine, self._check_room)
        self.reader = Reader()
        self.pressure = topics.pressure
        self.turns = Turns(topics.pressure)
        self._topics = topics
        self._schemas: dict[tuple[str, str], ObjectSchema] = {}
        self._announcing: dict[tuple[str, str], Announcing] = {}
        for namespace, collections in config.scopes():
            for collection in collections:
                name = (namespace, collection.name)
                if collection.object_schema is not None:
                    self._schemas[name] = ObjectSchema(collection.object_schema)
                if collection.queue is not None:
                    self._announcing[name] = Announcing(topics, collection.name, collection.queue)

    def _check_room(self, size: int) -> None:
        """Documents count as everything else does that this server keeps."""
        settings = self._topics.settings
        if size:
            if settings.max_total_bytes and self.engine.total_size + size > settings.max_total_bytes:
                raise capped("max_total_bytes", settings.max_total_bytes)
        elif settings.max_topics and self._topics.topics.count >= settings.max_topics:
            raise capped("max_topics", settings.max_topics)

    def schema(self, entry: Entry) -> ObjectSchema | None:
        return self._schemas.get((entry.namespace, entry.collection.name))

    def announcing(self, entry: Entry) -> Announcing | None:
        """Who is told of the appends to a collection, if somebody is."""
        return self._announcing.get((entry.namespace, entry.collection.name))

    def check_rate(self, entry: Entry, action: str, caller: Caller, call: Call, now: int) -> None:
        """Refuse one request too many."""
        name = entry.collection.name
        if self.rates.limits(entry.namespace, name, action):
            address = address_of(call, self.settings.trusted_proxy_hops)
            self.rates.check(entry.namespace, name, action, caller.identity, address, now)


class Places:
    """Finds documents by their raw paths, for those who want to read or to write. Most paths come again."""

    def __init__(self, catalogue: Catalogue, op: str) -> None:
        self._catalogue = catalogue
        self._op = op
        self._known: dict[str, Place] = {}

    def find(self, path: str) -> Place:
        """Refuses paths that lead nowhere."""
        place = self._known.get(path)
        if place is None:
            place = self._look_up(path)
            if len(self._known) >= MAX_PLACES:
                self._known.clear()
            self._known[path] = place
        return place

    def _look_up(self, path: str) -> Place:
        found = self._catalogue.find(segments_of(path), self._op)
        if found is None:
            raise no_such_path()
        entry, params = found
        rules = entry.collection.append_only
        if rules is None:
            raise regular_document(entry.collection.name)
        if not values_fit(params):
            raise invalid_path()
        key = entry.template.key(params)
        return Place(entry, rules, params, key, key_is_safe(key))


def hidden_from(collection: Collection, caller: Caller) -> frozenset[str]:
    return hidden_fields(collection, caller.roles) if collection.field_permissions else frozenset()
