"""A document of a collection as a log: its elements are the records, its key is the name.

The data of a record is the data of the element, its time the element's ``ts``, and its meta the proof of the author.
The hash of a document is made of the number of its elements and of the last one, so it is not kept anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec

from strandline.engine import Append, Batch, Commit, Config, Engine, Log
from strandline.engine.errors import EngineError, LogFull
from strandline.protocols.collections.config import AppendOnly, Collection
from strandline.protocols.collections.problems import (
    event_refused,
    invalid_path,
    limit_exceeded,
    not_a_document,
    not_monotonic,
    unauthorized,
)
from strandline.protocols.collections.settings import REPLAY_WINDOW_MS
from strandline.protocols.ownership import COLLECTION
from strandline.signing.canonical_json import canonical, parse

log = logging.getLogger(__name__)

#: Documents that are kept at hand. More than this are looked up again when they are used.
MAX_KNOWN = 100_000
#: Once so many versions are remembered of a document, those are forgotten that are no longer shown.
MIN_VERSIONS = 16
#: Looking for the last element may meet others who append; so often it is looked again.
MAX_LOOKS = 10


class Version(NamedTuple):
    """What a document is like at one moment: the seq and the time of its last element, how many there are, and the hash
    of that; an empty hash if there are none."""

    head: int
    total: int
    ts: int
    hash: str


EMPTY = Version(0, 0, 0, "")


class Element(NamedTuple):
    """What is to be appended: the data as it is kept and in canonical form, and the meta of the record."""

    data: bytes
    canonical: bytes
    meta: bytes | None


class Event(Protocol):
    """What is told of an append, in the same step."""

    def payload(self, hash: str, ts: int) -> bytes: ...

    def log(self) -> AbstractContextManager[Log]:
        """The log that it goes to, made if need be. It goes again if what is done with it fails."""

    def after(self, commit: Commit[Any]) -> Commit[Any]:
        """The commit of what was done with the log, or another one that is done later."""


class Written(NamedTuple):
    """What an append gave, once ``commit`` is done."""

    hash: str
    ts: int
    commit: Commit[Any]


def hash_of(count: int, last: bytes) -> str:
    """The hash of so many elements of which the last one has this data, in canonical form."""
    return sha256(b'{"last":%b,"n":%d}' % (last, count)).hexdigest()


class Document:
    """One log, and what is known of it."""

    __slots__ = ("_many", "_revision", "_versions", "log", "settled")

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Whether it was seen to that elements are kept as the collection says.
        self.settled = False
        self._revision = log.revision
        #: By their heads; some of them are still to come.
        self._versions: dict[int, Version] = {}
        self._many = MIN_VERSIONS

    @property
    def latest(self) -> int:
        """The time of the last element that was taken, however it fares on its way to the disk; -1: there is none."""
        return self.log.last_ts if self.log.next_seq > 1 else -1

    def expect(self, version: Version) -> None:
        """Remember what the document will be like once what was just appended shows. On the loop's thread only."""
        self._check_revision()
        versions = self._versions
        if len(versions) >= self._many:
            head = self.log.head
            self._versions = versions = {seq: known for seq, known in versions.items() if seq >= head}
            # Many may wait for the disk: they are not all looked at again with every append.
            self._many = max(MIN_VERSIONS, 2 * len(versions))
        versions[version.head] = version

    def version(self) -> Version | None:
        """What readers see now; None instead of waiting for the disk."""
        self._check_revision()
        known = self._versions.get(self.log.head)
        return known or self._look()

    def version_from_disk(self) -> Version:
        for _ in range(MAX_LOOKS):
            self.log.read_back(limit=1)
            found = self.version()
            if found is not None:
                return found
        raise EngineError(f"the last element of {self.log.name!r} does not stay at hand for long enough to be read")

    def _look(self) -> Version | None:
        log = self.log
        with log.engine.lock:
            page = log.read_back_resident(limit=1)
            if page is None:
                return None
            if not page.seqs:
                return EMPTY
            count = log.state().count
        version = Version(page.head, count, page.ts[0], hash_of(count, canonical(parse(page.data[0]))))
        self._versions[page.head] = version
        return version

    def _check_revision(self) -> None:
        """What was worked out before somebody removed elements is no longer true."""
        revision = self.log.revision
        if revision != self._revision:
            self._revision = revision
            self._versions = {}


class Documents:
    """Finds documents, and makes them with their first element. Appends come from the loop's thread alone."""

    def __init__(self, engine: Engine, check_room: Callable[[int], None] = lambda size: None) -> None:
        """``check_room`` refuses where there may be no more logs (for a size of 0), or not so many bytes more."""
        self._engine = engine
        self._check_room = check_room
        self._known: dict[str, Document] = {}

    def find(self, key: str) -> Document | None:
        """The document, if there is one. Refuses where another protocol has a log of this name."""
        document = self._known.get(key)
        if document is not None and not document.log.dropped:
            return document
        log = self._engine.find(key)
        if log is None:
            self._known.pop(key, None)
            return None
        if COLLECTION not in log.notes:
            raise not_a_document(key)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        document = self._known[key] = Document(log)
        return document

    def append(
        self,
        collection: Collection,
        rules: AppendOnly,
        key: str,
        element: Element,
        ts: int | None,
        now: int,
        event: Event | None,
        request_id: str | None = None,
    ) -> Written:
        """Append one element, making the document if need be. All of it happens, the event included, or nothing.

        ``request_id`` names the signed request that the append comes from. It is stored with the element, so a request
        that appended before is refused, also after a restart.
        """
        self._check_room(len(element.data))
        document = self.find(key)
        if document is None:
            return self._begin(collection, rules, key, element, ts, now, event, request_id)
        if not document.settled:
            _settle(document, collection)
        return self._append(document, rules, element, ts, now, event, request_id)

    def _begin(
        self,
        collection: Collection,
        rules: AppendOnly,
        key: str,
        element: Element,
        ts: int | None,
        now: int,
        event: Event | None,
        request_id: str | None,
    ) -> Written:
        if key.startswith("_"):
            raise invalid_path()  # the names of the server's own logs begin so
        self._check_room(0)
        config = Config(durability=collection.durability, idempotency_window_ms=REPLAY_WINDOW_MS)
        made = self._engine.create(key, config, notes={COLLECTION: collection.name})
        document = self.find(key)
        assert document is not None
        document.settled = True
        try:
            written = self._append(document, rules, element, ts, now, event, request_id)
        except BaseException:
            self._unmake(document)
            raise
        if written.commit.done and not made.done:
            # That a log was made is durable only when this is, whatever its class.
            return written._replace(commit=made)
        return written

    def _append(
        self,
        document: Document,
        rules: AppendOnly,
        element: Element,
        ts: int | None,
        now: int,
        event: Event | None,
        request_id: str | None,
    ) -> Written:
        log = document.log
        with self._engine.lock:
            if request_id is not None and log.remembers(request_id):
                raise unauthorized()
            count = log.coming_count
            if rules.max_items is not None and count >= rules.max_items:
                raise limit_exceeded(rules.max_items)
            latest = document.latest
            if ts is None:
                ts = max(now, latest + 1)
            elif ts <= latest:
                raise not_monotonic()
            hash = hash_of(count + 1, element.canonical)
            append = Append(log, Batch.of(element.data, meta=element.meta), request_id, ts)
            seq = log.next_seq
            if event is None:
                commit: Commit[Any] = log.append(append.batch, idempotency_key=request_id, ts=ts)
            else:
                commit = self._append_with(event, append, event.payload(hash, ts))
            document.expect(Version(seq, count + 1, ts, hash))
        return Written(hash, ts, commit)

    def _append_with(self, event: Event, append: Append, payload: bytes) -> Commit[Any]:
        with event.log() as told:
            try:
                return event.after(self._engine.change_all([append, Append(told, Batch.of(payload))]))
            except LogFull as error:
                if error.name != told.name:
                    raise
                raise event_refused(str(error)) from None

    def _unmake(self, document: Document) -> None:
        try:
            document.log.drop()
        except EngineError as error:
            name = document.log.name
            log.error("document %r was made for an append that failed, and cannot be removed: %s", name, error)


def _settle(document: Document, collection: Collection) -> None:
    """Keep elements from now on as the collection says by now. Waits for the disk, if need be."""
    config = document.log.config
    wanted = msgspec.structs.replace(
        config,
        durability=collection.durability,
        idempotency_window_ms=max(config.idempotency_window_ms, REPLAY_WINDOW_MS),
    )
    if config != wanted:
        document.log.configure(wanted)
    document.settled = True
