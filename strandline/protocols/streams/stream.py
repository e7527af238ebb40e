"""A log as a stream: what this protocol knows of it."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.engine import Config, Log
from strandline.engine.clock import MAX_AHEAD_MS
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError
from strandline.protocols.ownership import CLOSED, PROFILE, REGISTRY, STREAMS, is_hidden
from strandline.protocols.streams.grammar import media_type
from strandline.schema.profiles import GENERIC, Profile, load_profile
from strandline.schema.registry import Registry

JSON = "application/json"
#: Notes of a log that concern nobody but this protocol.
STREAM_SEQ, USED = "stream_seq", "used"
#: A stream whose time to live slides is written down as used so far ahead that reads seldom write anything.
_AHEAD = 4
_MAX_AHEAD_MS = 60_000


class ForkTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for when the stream was forked. ``offset`` is a seq; ``sub`` counts into what follows it."""

    source: str
    offset: int
    sub: int = 0


class StreamTraits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a stream is fixed when it is made. Times are milliseconds."""

    content_type: str = JSON
    ttl_seconds: int | None = None
    expires_at: int | None = None
    created_at: int = 0
    fork: ForkTraits | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        return {STREAMS: msgspec.to_builtins(self)}


def traits_of(config: Config) -> StreamTraits:
    """A log that another protocol made is JSON, and stays."""
    return msgspec.convert(config.attributes.get(STREAMS, {}), StreamTraits)


class Closing(msgspec.Struct, frozen=True, array_like=True):
    """Which append of a producer closed the stream; all None: one without a producer."""

    producer: str | None = None
    epoch: int | None = None
    seq: int | None = None


class Stream:
    """One object per log and server. Registry, profile and closing are looked up in the log's notes, and decoded
    anew only when they have changed."""

    __slots__ = (
        "_profile", "_registry", "_stored_profile", "_stored_registry", "_used_until", "close_commit", "consumed_at",
        "content_type", "content_type_bytes", "is_json", "log", "media_type", "name", "traits", "used_at",
    )  # fmt: skip

    def __init__(self, log: Log) -> None:
        self.log = log
        self.name = log.name
        self.traits = traits_of(log.config)
        #: As it was given.
        self.content_type = self.traits.content_type
        #: The same, for the header of a reply.
        self.content_type_bytes = self.content_type.encode("latin-1")
        #: As it is compared.
        self.media_type = media_type(self.content_type)
        self.is_json = self.media_type == JSON
        self.consumed_at: int | None = None
        #: That of the close, if it came without an append; None: none has since the start.
        self.close_commit: Commit[Any] | None = None
        self._used_until = int(log.notes.get(USED, 0))
        #: When it was last read or written, as far as that matters for its time to live.
        self.used_at = max(self._used_until, self.traits.created_at)
        self._stored_registry: object = None
        self._registry: Registry | None = None
        self._stored_profile: object = None
        self._profile: Profile = GENERIC

    def priority(self, now: int) -> int:
        return 0

    # --- what it is like now -------------------------------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        stored = self.log.notes.get(REGISTRY)
        if self._registry is None or stored is not self._stored_registry:
            self._registry = Registry.empty(self.name) if stored is None else Registry.load(stored)
            self._stored_registry = stored
        return self._registry

    @property
    def profile(self) -> Profile:
        stored = self.log.notes.get(PROFILE)
        if stored is not self._stored_profile:
            self._profile = GENERIC if stored is None else load_profile(stored)
            self._stored_profile = stored
        return self._profile

    @property
    def is_plain(self) -> bool:
        """Whether appends are kept as they come: there is no schema, no routing key by pointer and no profile."""
        notes = self.log.notes
        return REGISTRY not in notes and PROFILE not in notes

    @property
    def rules(self) -> tuple[object, object]:
        """What appends are checked against, for telling whether it has changed."""
        return self.log.notes.get(REGISTRY), self.log.notes.get(PROFILE)

    @property
    def closing(self) -> Closing | None:
        """What closed the stream; None while it is open."""
        stored = self.log.notes.get(CLOSED)
        return None if stored is None else msgspec.convert(stored, Closing)

    @property
    def closed(self) -> bool:
        """No further append is taken."""
        return CLOSED in self.log.notes

    @property
    def ended(self) -> bool:
        """Readers can see everything there will ever be. What is closed shows before that is on the disk, and if it
        never gets there the stream is open again; so they are not told before."""
        log = self.log
        if CLOSED not in log.notes or log.head != log.next_seq - 1:
            return False
        return self.close_commit is None or self.close_commit.done

    @property
    def gone(self) -> bool:
        """Deleted, and kept only for the streams that were forked from it."""
        return is_hidden(self.log)

    @property
    def end(self) -> int:
        """The seq of the last record that was ever assigned, visible or not: where the next append goes behind."""
        return self.log.next_seq - 1

    # --- time to live --------------------------------------------------------------------------------------------

    def correct_use(self, now: int) -> None:
        """If it was last used more than a day from now, a wrong clock said so: then it was used now."""
        if self.used_at > now + MAX_AHEAD_MS:
            self.used_at, self._used_until = now, 0

    @property
    def expires_at(self) -> int | None:
        """When it is no longer there, in milliseconds, unless it is used before."""
        if self.traits.ttl_seconds is not None:
            return self.used_at + self.traits.ttl_seconds * 1000
        return self.traits.expires_at

    def expired(self, now: int) -> bool:
        expires_at = self.expires_at
        return expires_at is not None and now >= expires_at

    def use(self, now: int) -> None:
        """It is read or written: a sliding time to live starts anew. Written down now and then, ahead of time: a
        server that starts again never takes a stream for older than it is."""
        ttl_seconds = self.traits.ttl_seconds
        if ttl_seconds is None or now <= self.used_at:
            return
        self.used_at = now
        if now > self._used_until and ttl_seconds:
            self._used_until = now + min(ttl_seconds * 1000 // _AHEAD, _MAX_AHEAD_MS)
            try:
                self.log.note({USED: self._used_until})
            except EngineError:
                pass  # whoever wants to write something will be told
