"""Regular documents: each is a log of versions, and the last version is the document.

A push replaces the whole document. It names the hash of the version that it replaces, so that of two clients that
change the same version, one is refused. The data of a record is the document, and its meta data the author's proof. The
log keeps as many versions as the collection declares; other protocols can read them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from strandline.collections.document_logs import DocumentLogs, NameCheck, after_creation, check_data, settle
from strandline.collections.elements import NewElement, sanitise
from strandline.collections.errors import CollectionError
from strandline.collections.events import AppendEvent
from strandline.collections.paths import DocumentPath
from strandline.collections.permissions import Caller
from strandline.collections.pull import AT_ONCE_BYTES, is_expired
from strandline.engine import Batch, Commit, Engine, Log, Page
from strandline.engine.commit import then
from strandline.engine.errors import EngineError
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, Proof, holds_for, meta_of
from strandline.signing.canonical_json import canonical, parse

#: How often to read the current version again if another one was pushed in between.
MAX_ATTEMPTS = 10


class DocumentVersion(NamedTuple):
    """A version of a document: its time, its hash, and its data and meta data as they are stored."""

    ts: int
    hash: str
    data: bytes
    meta: bytes | None


#: The version of a document that does not exist.
MISSING = DocumentVersion(0, "", b"{}", None)


class PreparedPush(NamedTuple):
    """A push that has passed all checks that do not depend on the current version. ``base_hash`` is the hash of the
    version to replace; None or empty if the document must not exist. ``request_id`` identifies the signed request of
    the push and is stored with the version."""

    path: DocumentPath
    version: NewElement
    hash: str
    base_hash: str | None
    event: AppendEvent | None
    request_id: str | None


def prepare_push(
    path: DocumentPath, data: Any, raw: bytes, author: tuple[Any, Any], base_hash: Any, caller: Caller | None
) -> PreparedPush:
    """Validate a push, in the order of the protocol. The parameters are those of
    :func:`strandline.collections.documents.prepare`. Raises :class:`CollectionError`."""
    data = check_data(path, data, caller)
    if base_hash is not None and not isinstance(base_hash, str):
        raise CollectionError("invalid_base_hash", f"baseHash is {base_hash!r}; expected a string or null")
    kept, changed = sanitise(data, raw)
    proof = _proof_of(path.key, kept, author, None if caller is None else caller.presenter)
    form = canonical(kept)
    version = NewElement(form if changed else raw, form, None if proof is None else meta_of(proof))
    event = None
    if path.bound.announcer is not None:
        sent = canonical(data) if changed else raw
        event = path.bound.announcer.event(path.params, sent, "" if caller is None else caller.identity)
    request_id = None if caller is None else caller.request_id
    return PreparedPush(path, version, sha256(form).hexdigest(), base_hash, event, request_id)


def _proof_of(key: str, data: dict[str, Any], author: tuple[Any, Any], presenter: str | None) -> Proof | None:
    """The proof of the author, which a document need not have. Raises :class:`CollectionError` if it does not hold."""
    public_key, signature = author
    if public_key is None and signature is None:
        return None
    if not isinstance(public_key, str) or not isinstance(signature, str):
        raise CollectionError("incomplete_proof", "a proof of the author needs authorPubkey and authorSignature")
    if presenter is not None and public_key != presenter:
        raise CollectionError("foreign_document_author", "the author of the document must be the signer of the request")
    proof = Proof(public_key, signature)
    if not holds_for(proof, key, data, DOCUMENT_DOMAIN):
        message = "the author's signature does not match the data and the path of the document"
        raise CollectionError("invalid_document_proof", message)
    return proof


class VersionPushed(NamedTuple):
    """The hash and the time of the pushed version. When ``commit`` is done, the push has the durability of the
    collection. The commit fails with CollectionError (``hash_mismatch``) if another version was pushed before and had
    to become durable first."""

    hash: str
    ts: int
    commit: Commit[Any]

    def wait(self) -> VersionPushed:
        """Wait until the push is durable. Raises CollectionError (``hash_mismatch``), and EngineError if the push
        cannot be made durable."""
        self.commit.wait()
        return self


class _Accepted(NamedTuple):
    """The last accepted version. ``commit`` is the push that wrote it, if it is not durable yet."""

    hash: str
    ts: int
    commit: Commit[Any] | None = None


class RegularDocument:
    """The log of a document."""

    __slots__ = ("_known", "_pushed", "log", "settled")

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Whether the log has the durability and the retention that the collection declares now.
        self.settled = False
        #: The hash and the time of the version that readers see, at a head and a revision of the log.
        self._known: tuple[tuple[int, int], _Accepted] | None = None
        #: The last version that was pushed here, and its seq.
        self._pushed: tuple[int, _Accepted] | None = None

    def version(self) -> DocumentVersion | None:
        """The current version for readers, or None if it must be read from the disk, or takes long to hash."""
        revision = self.log.revision
        page = self.log.read_back_resident(limit=1)
        return None if page is None else self._version(page, revision, AT_ONCE_BYTES)

    def version_from_disk(self) -> DocumentVersion:
        """The current version for readers. Waits for the disk."""
        revision = self.log.revision
        version = self._version(self.log.read_back(limit=1), revision)
        assert version is not None
        return version

    def _version(self, page: Page, revision: int, max_bytes: int | None = None) -> DocumentVersion | None:
        """The version on a page that was read after the log had this revision. None if its hash is not known and it is
        larger than ``max_bytes``."""
        if not page.seqs:
            return MISSING
        known, data = self._known, page.data[0]
        place = page.head, revision
        if known is None or known[0] != place:
            if max_bytes is not None and len(data) > max_bytes:
                return None
            self._known = known = place, _Accepted(sha256(canonical(parse(data))).hexdigest(), page.ts[0])
        return DocumentVersion(page.ts[0], known[1].hash, data, page.metas[0])

    def hash_at(self, seq: int, data: bytes) -> str:
        """The hash of the version that has this data. Any thread may call it."""
        pushed = self._pushed
        if pushed is not None and pushed[0] == seq:
            return pushed[1].hash
        return sha256(canonical(parse(data))).hexdigest()

    def accepted(self) -> _Accepted | None:
        """The last accepted version, durable or not; None if it must be read from the disk. The caller holds the
        engine's lock."""
        log = self.log
        last = log.next_seq - 1
        if self._pushed is not None and self._pushed[0] == last:
            pushed = self._pushed[1]
            if pushed.commit is not None and not pushed.commit.done:
                return pushed
        if log.head != last:
            return None
        if self._known is not None and self._known[0] == (last, log.revision):
            return self._known[1]
        version = self.version()
        return None if version is None else _Accepted(version.hash, version.ts)

    def expect(self, seq: int, hash: str, ts: int, commit: Commit[Any]) -> None:
        """Remember the version that was just pushed."""
        self._pushed = seq, _Accepted(hash, ts, commit)

    def load(self) -> None:
        """Make the last accepted version known. Waits for the disk."""
        self.log.sync().wait()
        self.version_from_disk()


class RegularDocuments:
    """Finds regular documents, and creates them with their first version. Not safe for concurrent pushes: a server
    pushes on the event loop's thread, and :class:`~strandline.collections.Collections` holds a lock."""

    def __init__(self, engine: Engine, check_name: NameCheck | None = None) -> None:
        self._engine = engine
        self._logs = DocumentLogs(engine, RegularDocument, check_name, regular=True)

    def find(self, key: str) -> RegularDocument | None:
        """Find a document. Raises CollectionError (``not_a_document``) if the log of this name is not a regular
        document."""
        return self._logs.find(key)

    def push(self, push: PreparedPush, now: int) -> VersionPushed | None:
        """Replace the document, or create it, if its hash is still the base hash of the push. The version and its event
        are written in one transaction. None if the current version must be read from the disk first: call ``load`` of
        the document and push again. Raises :class:`CollectionError`."""
        path = push.path
        versions = path.collection.max_versions
        document = self.find(path.key)
        if document is not None:
            if not document.settled:
                settle(document.log, path, versions)
                document.settled = True
            return self._push(document, push, now)
        if push.base_hash:
            raise hash_mismatch("")
        with self._logs.created(path, versions) as created:
            document = self.find(path.key)
            assert document is not None
            document.settled = True
            pushed = self._push(document, push, now)
            assert pushed is not None
        return pushed._replace(commit=after_creation(pushed.commit, created))

    def push_from_disk(self, push: PreparedPush, now: int) -> VersionPushed:
        """Like :meth:`push`, but waits for the disk."""
        for _ in range(MAX_ATTEMPTS):
            pushed = self.push(push, now)
            if pushed is not None:
                return pushed
            document = self.find(push.path.key)
            if document is not None:
                document.load()
        raise busy(push.path.key)

    def _push(self, document: RegularDocument, push: PreparedPush, now: int) -> VersionPushed | None:
        log, request_id = document.log, push.request_id
        with self._engine.lock:
            batch = Batch.of(push.version.data, meta=push.version.meta)
            before = None if request_id is None else log.remembered(request_id)
            if before is not None:
                # The request took effect before. The log appends nothing, and waits until that version is durable.
                return VersionPushed(push.hash, before.ts, log.append(batch, idempotency_key=request_id))
            current = document.accepted()
            if current is None:
                return None
            if not _replaces(push, current, now):
                return VersionPushed(push.hash, now, _refused(current))
            ts, seq = max(now, log.last_ts), log.next_seq
            commit = self._logs.write(log, batch, ts, request_id, push.event, push.hash)
            document.expect(seq, push.hash, ts, commit)
        return VersionPushed(push.hash, ts, commit)


def _replaces(push: PreparedPush, current: _Accepted, now: int) -> bool:
    """Whether the push is based on the current version. A document that has expired can also be created again, because
    readers see no version of it."""
    base = push.base_hash or ""
    return base == current.hash or (not base and is_expired(push.path.collection, current.ts, now))


def _refused(current: _Accepted) -> Commit[Any]:
    """Refuse a push. The version that it conflicts with must be durable first, so that the client can pull it. Raises
    CollectionError (``hash_mismatch``) at once if it is."""

    def refuse(_: Any) -> None:
        raise hash_mismatch(current.hash)

    return then(Commit.of(None) if current.commit is None else current.commit, refuse)


def hash_mismatch(current: str) -> CollectionError:
    has = f"its hash is {current}" if current else "it does not exist"
    message = f"the push is not based on the current version of the document: {has}; pull it and push again"
    return CollectionError("hash_mismatch", message, current_hash=current)


def busy(key: str) -> EngineError:
    return EngineError(f"the document {key!r} was replaced {MAX_ATTEMPTS} times while its version was read")
