"""Documents: each is a log whose records are the elements and whose name is the key of the document.

The data of a record is the data of the element, its time the element's ``ts``, and its meta data the author's proof.
The hash of a document is computed from the number of its elements and the last element, so it is not stored.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from strandline.collections.config import Collection
from strandline.collections.elements import NewElement, check_time, make_element
from strandline.collections.errors import CollectionError, invalid_path, queue_unavailable, unauthorized
from strandline.collections.events import AppendEvent, discard
from strandline.collections.paths import DocumentPath
from strandline.collections.permissions import Caller, check_fields_writable
from strandline.collections.settings import REPLAY_WINDOW_MS
from strandline.engine import Append, Batch, Commit, Config, Engine, Log
from strandline.engine.errors import EngineError, LogFull
from strandline.engine.ownership import COLLECTION
from strandline.engine.record import is_internal
from strandline.signing.canonical_json import canonical, parse

#: The maximum number of documents kept in memory. Beyond that, all are dropped and looked up again.
MAX_KNOWN = 100_000
#: A document that remembers this many versions drops those before its head.
MIN_VERSIONS = 16
#: How often to read the last element again if it was evicted from memory in between.
MAX_ATTEMPTS = 10
#: Names per read of a listing.
_LIST_CHUNK = 1024
#: Sorts after every name that starts with the text before it.
_LAST = "\U0010ffff"


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

    ``request_id`` identifies the signed request of the append. It is stored with the element, so a repeated request is
    refused, even after a restart.
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
    if not isinstance(data, dict):
        raise CollectionError("invalid_data", "the data of an element must be a JSON object")
    bound, collection = path.bound, path.collection
    if caller is None:
        identity = presenter = request_id = None
    else:
        check_fields_writable(collection, caller.roles, data)
        identity, presenter, request_id = caller.identity, caller.presenter, caller.request_id
    if bound.schema is not None:
        bound.schema.check(data)
    element, sent = make_element(
        path.key, data, raw, author, proof_required=path.rules.require_author_signature, presenter=presenter
    )
    ts = check_time(ts, now)
    event = None if bound.announcer is None else bound.announcer.event(path.params, sent, identity or "")
    return PreparedAppend(path, element, ts, event, request_id)


class AppendResult(NamedTuple):
    """The hash of the document and the time of the appended element. When ``commit`` is done, the append has the
    durability of the collection."""

    hash: str
    ts: int
    commit: Commit[Any]

    def wait(self) -> AppendResult:
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

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, Document] = {}

    def find(self, key: str) -> Document | None:
        """Find a document. Raises CollectionError (``not_a_document``) if another protocol created a log of this
        name."""
        document = self._known.get(key)
        if document is not None and not document.log.dropped:
            return document
        log = self._engine.find(key)
        if log is None:
            self._known.pop(key, None)
            return None
        if COLLECTION not in log.notes:
            message = f"another protocol created the log {key!r}; it is not a document of a collection"
            raise CollectionError("not_a_document", message)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        document = self._known[key] = Document(log)
        return document

    def list_below(self, prefix: str, after: str, most: int) -> list[str]:
        """The last segments of the keys that start with ``prefix``, in order, beginning after ``after``."""
        engine = self._engine
        items: list[str] = []
        last = prefix + after
        while True:
            names = engine.names(prefix, last, _LIST_CHUNK)
            for name in names:
                last = name
                item, slash, _ = name[len(prefix) :].partition("/")
                if slash:
                    # Longer keys belong to another path; the listing skips all of them at once.
                    last = f"{prefix}{item}/{_LAST}"
                    break
                log = engine.find(name)
                if item and log is not None and COLLECTION in log.notes and log.head:
                    items.append(item)
                    if len(items) == most:
                        return items
            else:
                if len(names) < _LIST_CHUNK:
                    return items

    def append(self, append: PreparedAppend, now: int) -> AppendResult:
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
            _settle(document, path.collection)
        return self._append(document, append, now)

    def _create(self, append: PreparedAppend, now: int) -> AppendResult:
        path = append.path
        if is_internal(path.key):
            raise invalid_path()  # such names belong to the server's internal logs
        config = Config(durability=path.collection.durability, idempotency_window_ms=REPLAY_WINDOW_MS)
        created = self._engine.create(path.key, config, notes={COLLECTION: path.collection.name})
        document = self.find(path.key)
        assert document is not None
        document.settled = True
        try:
            appended = self._append(document, append, now)
        except BaseException:
            discard(document.log)
            raise
        if appended.commit.done and not created.done:
            # The creation of a log is durable only when its own commit is done, regardless of the log's durability.
            return appended._replace(commit=created)
        return appended

    def _append(self, document: Document, append: PreparedAppend, now: int) -> AppendResult:
        log = document.log
        element, ts, request_id = append.element, append.ts, append.request_id
        with self._engine.lock:
            if request_id is not None and log.remembers(request_id):
                raise unauthorized()
            count = log.coming_count
            limit = append.path.rules.max_items
            if limit is not None and count >= limit:
                raise CollectionError("document_full", f"the document has the maximum of {limit} elements", limit=limit)
            latest = document.latest
            if ts is None:
                ts = max(now, latest + 1)
            elif ts <= latest:
                raise CollectionError(
                    "time_not_increasing", f"ts is {ts}; expected a time later than the last element, {latest}"
                )
            hash = hash_of(count + 1, element.canonical)
            batch = Batch.of(element.data, meta=element.meta)
            seq = log.next_seq
            if append.event is None:
                commit: Commit[Any] = log.append(batch, idempotency_key=request_id, ts=ts)
            else:
                change = Append(log, batch, request_id, ts)
                commit = self._append_with(append.event, change, append.event.payload(hash, ts))
            document.expect(Version(seq, count + 1, ts, hash))
        return AppendResult(hash, ts, commit)

    def _append_with(self, event: AppendEvent, change: Append, payload: bytes) -> Commit[Any]:
        with event.log() as topic:
            try:
                return event.after(self._engine.change_all([change, Append(topic, Batch.of(payload))]))
            except LogFull as error:
                if error.name != topic.name:
                    raise
                raise queue_unavailable(str(error)) from None


def _settle(document: Document, collection: Collection) -> None:
    """Apply the durability of the collection, which may have changed since the document was created. Waits for the disk
    if so."""
    config = document.log.config
    wanted = msgspec.structs.replace(
        config,
        durability=collection.durability,
        idempotency_window_ms=max(config.idempotency_window_ms, REPLAY_WINDOW_MS),
    )
    if config != wanted:
        document.log.configure(wanted)
    document.settled = True


def _announce(append: PreparedAppend, now: int) -> AppendResult:
    """Append only the event of an element that is not stored. The event gets the durability of the collection,
    regardless of the durability of its topic. A replayed request is refused while the topic keeps its idempotency
    key."""
    event, request_id = append.event, append.request_id
    ts = now if append.ts is None else append.ts
    hash = sha256(append.element.canonical).hexdigest()
    commit: Commit[object] = Commit.of(None)
    if event is not None:
        with event.log() as topic:
            try:
                if request_id is not None and topic.remembers(request_id):
                    raise unauthorized()
                appended = topic.append(Batch.of(event.payload(hash, ts)), idempotency_key=request_id)
            except LogFull as error:
                raise queue_unavailable(str(error)) from None
        durable = append.path.collection.durability == "fsync"
        commit = event.after(topic.sync() if durable and appended.done else appended)
    return AppendResult(hash, ts, commit)
