"""Append-only documents: each is a log whose records are the elements and whose name is the key of the document.

The data of a record is the data of the element, its time the element's ``ts``, and its meta data the author's proof.
The hash of a document is computed from the number of its elements and the last element, so it is not stored.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from strandline.collections.document_logs import DocumentLogs, NameCheck, after_creation, check_data, settle
from strandline.collections.elements import NewElement, check_time, make_element
from strandline.collections.errors import CollectionError, queue_unavailable
from strandline.collections.events import AppendEvent
from strandline.collections.paths import DocumentPath
from strandline.collections.permissions import Caller
from strandline.engine import Batch, Commit, Engine, Log
from strandline.engine.errors import EngineError, LogFull
from strandline.engine.record import FLUSHED
from strandline.signing.canonical_json import canonical, parse

#: A document that remembers this many versions drops those before its head.
MIN_VERSIONS = 16
#: How often to read the last element again if it was evicted from memory in between.
MAX_ATTEMPTS = 10


class Version(NamedTuple):
    """The state of a document at one moment: the seq and the time of its last element, the number of elements, and the
    hash, which is empty if there are no elements."""

    head: int
    total: int
    ts: int
    hash: str


EMPTY = Version(0, 0, 0, "")


class PreparedAppend(NamedTuple):
    """An append that has passed all checks that do not depend on the state of the document.

    ``request_id`` identifies the signed request of the append. It is stored with the element, so a repeated request
    gets the first answer again, even after a restart.
    """

    path: DocumentPath
    element: NewElement
    ts: int | None
    event: AppendEvent | None
    request_id: str | None


def prepare(
    path: DocumentPath, data: Any, raw: bytes, author: tuple[Any, Any], ts: Any, caller: Caller | None, now: int
) -> PreparedAppend:
    """Validate an append, in the order of the protocol. Raises :class:`CollectionError`.

    ``raw`` is the text that ``data`` was parsed from. ``author`` is the author's public key and signature, as they were
    sent. The caller has write access to the collection; None is the program itself, which may send every field.
    """
    data = check_data(path, data, caller)
    bound = path.bound
    identity, presenter, request_id = (
        (None, None, None) if caller is None else (caller.identity, caller.presenter, caller.request_id)
    )
    element, sent = make_element(
        path.key, data, raw, author, proof_required=path.rules.require_author_signature, presenter=presenter
    )
    ts = check_time(ts, now)
    event = None if bound.announcer is None else bound.announcer.event(path.params, sent, identity or "")
    return PreparedAppend(path, element, ts, event, request_id)


class ElementAppended(NamedTuple):
    """The hash of the document and the time of the appended element. When ``commit`` is done, the append has the
    durability of the collection."""

    hash: str
    ts: int
    commit: Commit[Any]

    def wait(self) -> ElementAppended:
        """Wait until the append is durable. Raises EngineError if it cannot be made durable."""
        self.commit.wait()
        return self


def hash_of(count: int, last: bytes) -> str:
    """The hash of a document with ``count`` elements; ``last`` is the data of the last one, in canonical form."""
    return sha256(b'{"last":%b,"n":%d}' % (last, count)).hexdigest()


class Document:
    """The log of a document, and its latest versions."""

    __slots__ = ("_many", "_revision", "_versions", "log", "settled")

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Whether the log has the durability that the collection declares now.
        self.settled = False
        self._revision = log.revision
        #: Versions by their heads. Those after the head of the log are not durable yet.
        self._versions: dict[int, Version] = {}
        self._many = MIN_VERSIONS

    @property
    def latest(self) -> int:
        """The time of the last accepted element, durable or not; -1 if there is none."""
        return self.log.last_ts if self.log.next_seq > 1 else -1

    def expect(self, version: Version) -> None:
        """Remember the version that the document will have once readers see the element that was just appended."""
        self._check_revision()
        versions = self._versions
        if len(versions) >= self._many:
            head = self.log.head
            self._versions = versions = {seq: known for seq, known in list(versions.items()) if seq >= head}
            # Many versions may wait for the disk. Doubling the limit keeps appends from scanning all of them.
            self._many = max(MIN_VERSIONS, 2 * len(versions))
        versions[version.head] = version

    def version(self) -> Version | None:
        """The current version for readers, or None if it must be read from the disk."""
        self._check_revision()
        known = self._versions.get(self.log.head)
        return known or self._read_version()

    def version_from_disk(self) -> Version:
        """The current version for readers. Waits for the disk."""
        for _ in range(MAX_ATTEMPTS):
            self.log.read_back(limit=1)
            found = self.version()
            if found is not None:
                return found
        raise EngineError(
            f"the last element of {self.log.name!r} was evicted from memory {MAX_ATTEMPTS} times while it was read"
        )

    def _read_version(self) -> Version | None:
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
        """Forget versions that were computed before elements were deleted."""
        revision = self.log.revision
        if revision != self._revision:
            self._revision = revision
            self._versions = {}


class Documents:
    """Finds documents, and creates them with their first element. Not safe for concurrent appends: a server appends on
    the event loop's thread, and :class:`~strandline.collections.Collections` holds a lock."""

    def __init__(self, engine: Engine, check_name: NameCheck | None = None) -> None:
        self._engine = engine
        self._logs = DocumentLogs(engine, Document, check_name, regular=False)

    def find(self, key: str) -> Document | None:
        """Find a document. Raises CollectionError (``not_a_document``) if the log of this name is not an append-only
        document."""
        return self._logs.find(key)

    def append(self, append: PreparedAppend, now: int) -> ElementAppended:
        """Append one element, and create the document if it does not exist. The element and its event are written in
        one transaction. An element without a time gets the time ``now``, or the next millisecond after the last
        element. Raises :class:`CollectionError`."""
        path = append.path
        if not path.rules.persist:
            return _announce(append, now)
        document = self.find(path.key)
        if document is None:
            return self._create(append, now)
        if not document.settled:
            settle(document.log, path)
            document.settled = True
        return self._append(document, append, now)

    def _create(self, append: PreparedAppend, now: int) -> ElementAppended:
        with self._logs.created(append.path) as created:
            document = self.find(append.path.key)
            assert document is not None
            document.settled = True
            appended = self._append(document, append, now)
        return appended._replace(commit=after_creation(appended.commit, created))

    def _append(self, document: Document, append: PreparedAppend, now: int) -> ElementAppended:
        log = document.log
        element, ts, request_id = append.element, append.ts, append.request_id
        with self._engine.lock:
            before = None if request_id is None else log.remembered(request_id)
            count = log.coming_count
            if before is not None:
                # The request was accepted before. The log appends nothing, and waits until the element is durable.
                count -= log.next_seq - 1 - before.first
                commit: Commit[Any] = log.append(Batch.of(element.data), idempotency_key=request_id)
                return ElementAppended(hash_of(count, element.canonical), before.ts, commit)
            limit = append.path.rules.max_items
            if limit is not None and count >= limit:
                raise CollectionError("document_full", f"the document has the maximum of {limit} elements", limit=limit)
            latest = document.latest
            if ts is None:
                ts = max(now, latest + 1)
            elif ts <= latest:
                raise CollectionError(
                    "time_not_increasing",
                    f"ts is {ts}; expected a time later than the last element, {latest}",
                    latest=latest,
                )
            hash = hash_of(count + 1, element.canonical)
            batch = Batch.of(element.data, meta=element.meta)
            seq = log.next_seq
            commit = self._logs.write(log, batch, ts, request_id, append.event, hash)
            document.expect(Version(seq, count + 1, ts, hash))
        return ElementAppended(hash, ts, commit)


def _announce(append: PreparedAppend, now: int) -> ElementAppended:
    """Append only the event of an element that is not stored. The event gets the durability of the collection,
    regardless of the durability of its topic. A repeated request gets the first answer while the topic keeps its
    idempotency key."""
    event, request_id = append.event, append.request_id
    ts = now if append.ts is None else append.ts
    hash = sha256(append.element.canonical).hexdigest()
    commit: Commit[object] = Commit.of(None)
    if event is not None:
        with event.log() as topic, topic.engine.lock:
            before = None if request_id is None else topic.remembered(request_id)
            # The record has the time of the answer, so that the answer can be given again.
            recorded = max(now, topic.last_ts) if before is None else before.ts
            if append.ts is None:
                ts = recorded
            try:
                batch = Batch.of(event.payload(hash, ts))
                appended = topic.append(batch, idempotency_key=request_id, ts=recorded)
            except LogFull as error:
                raise queue_unavailable(str(error)) from None
        durable = append.path.collection.durability in FLUSHED
        commit = event.after(topic.sync() if durable and appended.done else appended)
    return ElementAppended(hash, ts, commit)
