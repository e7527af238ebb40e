"""A log as a stream: its properties in this protocol."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.engine import Config, Log
from strandline.engine.commit import Commit
from strandline.engine.ownership import CLOSED, JSON, PROFILE, REGISTRY, STREAMS, checks_records, media_type, owner_of
from strandline.engine.record import MAX_SEQ
from strandline.schema.log_search import LogSearch, log_search
from strandline.schema.profiles import GENERIC, Profile, StateProtocol
from strandline.schema.registry import Registry
from strandline.service.catalog import is_hidden, profile_of, registry_of
from strandline.service.lifetime import Lifetime

#: The notes of a log that only this protocol uses.
STREAM_SEQ = "stream_seq"


class ForkTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The request that created a fork. ``offset`` is a seq; ``sub`` counts into what follows it."""

    source: str
    offset: int
    sub: int = 0


class StreamTraits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The properties of a stream that are fixed at creation. Times are milliseconds."""

    content_type: str = JSON
    ttl_seconds: int | None = None
    expires_at: int | None = None
    fork: ForkTraits | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        return {STREAMS: msgspec.to_builtins(self)}


def traits_of(config: Config) -> StreamTraits:
    """The traits of a log; a log of another protocol is JSON and never expires."""
    return msgspec.convert(config.attributes.get(STREAMS, {}), StreamTraits)


class Closing(msgspec.Struct, frozen=True, array_like=True):
    """The append of a producer that closed the stream; all None: a close without a producer."""

    producer: str | None = None
    epoch: int | None = None
    seq: int | None = None


class Stream:
    """One object per log and server. Registry, profile and closing are in the notes of the log, and are decoded again
    only when they have changed."""

    __slots__ = (
        "_profile", "_registry", "_stored_profile", "_stored_registry", "close_commit", "consumed_at", "content_type",
        "content_type_bytes", "is_json", "lifetime", "log", "media_type", "name", "readable_through", "traits",
        "without_messages",
    )  # fmt: skip

    def __init__(self, log: Log, lifetime: Lifetime | None = None) -> None:
        self.log = log
        self.lifetime = lifetime
        self.name = log.name
        self.traits = traits_of(log.config)
        #: The content type, as given.
        self.content_type = self.traits.content_type
        #: The content type, for the header of a reply.
        self.content_type_bytes = self.content_type.encode("latin-1")
        #: The content type, normalized for comparison.
        self.media_type = media_type(self.content_type)
        self.is_json = self.media_type == JSON
        self.consumed_at: int | None = None
        #: The last seq before records that could not be read. Long answers end here, so that their readers get the
        #: records before the damage, and then the error.
        self.readable_through = MAX_SEQ
        #: The commit of a close without an append; None: none since the start.
        self.close_commit: Commit[Any] | None = None
        #: Records after the first and up to the second seq are known not to be messages of the state protocol.
        self.without_messages = (0, 0)
        self._stored_registry: object = None
        self._registry: Registry | None = None
        self._stored_profile: object = None
        self._profile: Profile = GENERIC

    def priority(self, now: int) -> int:
        return 0

    # --- current state ---------------------------------------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        stored = self.log.notes.get(REGISTRY)
        if self._registry is None or stored is not self._stored_registry:
            self._registry = registry_of(self.log)
            self._stored_registry = stored
        return self._registry

    @property
    def search(self) -> LogSearch | None:
        """The search configuration; None if the stream has none."""
        return log_search(self.log.notes.get(REGISTRY))

    @property
    def profile(self) -> Profile:
        stored = self.log.notes.get(PROFILE)
        if stored is not self._stored_profile:
            self._profile = profile_of(self.log)
            self._stored_profile = stored
        return self._profile

    @property
    def is_plain(self) -> bool:
        """Whether appends are stored unchanged: there is no schema, no routing key by pointer and no profile."""
        return not checks_records(self.log.notes)

    @property
    def has_state_messages(self) -> bool:
        """Whether records may be messages of the state protocol: they are JSON, and no schema or other protocol says
        what they are."""
        if self.is_plain:
            return self.is_json and owner_of(self.name, self.log.notes) is None
        return isinstance(self.profile, StateProtocol)

    @property
    def rules(self) -> tuple[object, object]:
        """What appends are checked against; compare it to see whether it has changed."""
        return self.log.notes.get(REGISTRY), self.log.notes.get(PROFILE)

    @property
    def closing(self) -> Closing | None:
        """How the stream was closed; None while it is open."""
        stored = self.log.notes.get(CLOSED)
        return None if stored is None else msgspec.convert(stored, Closing)

    @property
    def closed(self) -> bool:
        """Whether the stream accepts no further appends."""
        return CLOSED in self.log.notes

    @property
    def ended(self) -> bool:
        """Whether readers can see all records that the stream will ever have. A close that is not durable yet can still
        be lost, and the stream would be open again; so readers do not learn of it before it is durable."""
        log = self.log
        if CLOSED not in log.notes or log.head != log.next_seq - 1:
            return False
        return self.close_commit is None or self.close_commit.done

    @property
    def gone(self) -> bool:
        """Whether the stream is deleted and kept only for its forks."""
        return is_hidden(self.log)

    @property
    def end(self) -> int:
        """The last assigned seq, visible or not: the next append follows it."""
        return self.log.next_seq - 1

    # --- time to live --------------------------------------------------------------------------------------------

    @property
    def expires_at(self) -> int | None:
        """When the stream is removed unless it is used before, in milliseconds; None: never."""
        return None if self.lifetime is None else self.lifetime.expires_at

    def use(self, now: int) -> None:
        """Note that the stream was read or written."""
        if self.lifetime is not None:
            self.lifetime.use(now)
