"""The public API: declared collections, bound to an engine, for programs that use them in process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from strandline.collections.config import LIST, READ, WRITE, Collection, CollectionsConfig
from strandline.collections.declaration import DeclaredCollections, Namespace
from strandline.collections.document_logs import NameCheck, list_below
from strandline.collections.documents import EMPTY, Documents, ElementAppended, prepare
from strandline.collections.elements import is_deep
from strandline.collections.errors import BadCollections, CollectionError, invalid_path
from strandline.collections.events import Announcer, EngineTopics, EventTopics
from strandline.collections.notes import update_notes
from strandline.collections.paths import BoundCollection, DocumentPath, PathIndex, key_is_safe
from strandline.collections.permissions import Caller, check_access, hidden_fields, with_self
from strandline.collections.pull import ElementReader, PullBounds, is_expired, select
from strandline.collections.regular_documents import MISSING, RegularDocuments, VersionPushed, prepare_push
from strandline.engine import Engine
from strandline.signing.author_proofs import Proof, proof_of
from strandline.signing.canonical_json import NotJson, canonical, parse

#: The default and the maximum number of documents in a listing.
LIST_LIMIT = 100
MAX_LIST_LIMIT = 1000

# Inside the class, ``list`` is a method.
Names = list[str]


class Element(NamedTuple):
    """An element of a document. ``proof`` is the author's public key and signature, if the element has them."""

    ts: int
    data: dict[str, Any]
    proof: Proof | None


class PullResult(NamedTuple):
    """The elements of a pull, and the hash of their document. If ``more``, there are later elements; pull them with the
    time of the last element as the checkpoint."""

    elements: list[Element]
    hash: str
    more: bool


class ReadDocument(NamedTuple):
    """The current version of a regular document. ``proof`` is the author's public key and signature, if it has
    them."""

    data: dict[str, Any]
    hash: str
    proof: Proof | None


class Collections:
    """All collections of one engine. Safe to use from any thread.

    Paths are those of the protocol: ``events/2026-11-15`` is a document of the storage path ``events/{date}``. The
    roles and field permissions of the collection apply to a ``caller``. Without one, the program itself acts, with full
    access. All operations raise :class:`CollectionError`. Raises :class:`BadCollections` if the declarations cannot be
    served.

    A server passes ``topics``, which opens the topics of queue events, and ``check_name``, which refuses names of logs
    that belong to other protocols.
    """

    def __init__(
        self,
        engine: Engine,
        declared: CollectionsConfig | Iterable[Collection | Namespace],
        *,
        topics: EventTopics | None = None,
        check_name: NameCheck | None = None,
    ) -> None:
        self.engine = engine
        self.config = declared if isinstance(declared, CollectionsConfig) else _config_of(declared)
        self.documents = Documents(engine, check_name)
        self.regular_documents = RegularDocuments(engine, check_name)
        topics = EngineTopics(engine) if topics is None else topics
        #: The paths of every namespace; those without a namespace are under the empty name.
        self.namespaces: Mapping[str, PathIndex] = {
            namespace: PathIndex(collections, namespace) for namespace, collections in self.config.scopes()
        }
        for index in self.namespaces.values():
            for bound in index:
                if bound.collection.queue is not None:
                    bound.announcer = Announcer(topics, bound.collection.name, bound.collection.queue)
        if engine.writable:
            update_notes(engine, self.namespaces.values())
        self._lock = threading.Lock()

    def append(
        self,
        path: str,
        data: Mapping[str, Any],
        *,
        ts: int | None = None,
        proof: Proof | None = None,
        caller: Caller | None = None,
        namespace: str = "",
    ) -> ElementAppended:
        """Append an element to the document at ``path``. The result's ``wait`` returns once it is durable.

        ``ts`` is the time of the element in milliseconds, later than that of the last element. Without it, the server
        assigns the current time. ``proof`` is the author's signature (:func:`strandline.signing.author_proofs.sign`),
        which a collection requires by default.
        """
        document, caller = self._document(path, WRITE, caller, namespace, regular=False)
        parsed, raw = _as_json(data, document.collection.max_body_bytes)
        author = (None, None) if proof is None else (proof.public_key, proof.signature)
        now = self._now()
        append = prepare(document, parsed, raw, author, ts, caller, now)
        with self._lock:
            return self.documents.append(append, now)

    def pull(
        self,
        path: str,
        *,
        checkpoint: int | None = None,
        last: int | None = None,
        full: bool = False,
        caller: Caller | None = None,
        namespace: str = "",
    ) -> PullResult:
        """Pull elements of the document at ``path``: those later than ``checkpoint``, the ``last`` ones, or with
        ``full`` all of them. A pull needs one of these bounds. A document that does not exist has no elements."""
        target, caller = self._document(path, READ, caller, namespace, regular=False)
        collection, now = target.collection, self._now()
        if not target.rules.persist:
            return PullResult([], "", False)
        selection = select(collection, target.rules, PullBounds(checkpoint, last, full), now)
        with self._lock:
            document = self.documents.find(target.key)
            version = EMPTY if document is None else document.version_from_disk()
        if document is None or version is EMPTY or is_expired(collection, version.ts, now):
            return PullResult([], "", False)
        hidden = frozenset[str]() if caller is None else hidden_fields(collection, caller.roles)
        if target.rules.field in hidden:
            return PullResult([], version.hash, False)
        found = ElementReader.read_from_disk(document, version, selection, hidden)
        return PullResult([_element(one) for one in parse(b"[%b]" % found.json)], version.hash, found.more)

    def push(
        self,
        path: str,
        data: Mapping[str, Any],
        *,
        base_hash: str | None = None,
        proof: Proof | None = None,
        caller: Caller | None = None,
        namespace: str = "",
    ) -> VersionPushed:
        """Replace the regular document at ``path``. The result's ``wait`` returns once the new version is durable.

        ``base_hash`` is the hash of the version that the new one replaces; without it, the document must not exist. If
        the current version is another one, raises CollectionError (``hash_mismatch``), here or in ``wait``. ``proof``
        is the author's signature (:func:`strandline.signing.author_proofs.sign`, with the domain ``DOCUMENT_DOMAIN``).
        """
        document, caller = self._document(path, WRITE, caller, namespace, regular=True)
        parsed, raw = _as_json(data, document.collection.max_body_bytes)
        author = (None, None) if proof is None else (proof.public_key, proof.signature)
        push = prepare_push(document, parsed, raw, author, base_hash, caller)
        with self._lock:
            return self.regular_documents.push_from_disk(push, self._now())

    def read(self, path: str, *, caller: Caller | None = None, namespace: str = "") -> ReadDocument:
        """Read the regular document at ``path``. A document that does not exist is empty, and so is its hash."""
        target, caller = self._document(path, READ, caller, namespace, regular=True)
        with self._lock:
            document = self.regular_documents.find(target.key)
        version = MISSING if document is None else document.version_from_disk()
        if version is MISSING or is_expired(target.collection, version.ts, self._now()):
            return ReadDocument({}, "", None)
        hidden = frozenset[str]() if caller is None else hidden_fields(target.collection, caller.roles)
        data = {name: value for name, value in parse(version.data).items() if name not in hidden}
        return ReadDocument(data, version.hash, proof_of(version.meta))

    def list(
        self,
        path: str = "",
        *,
        after: str = "",
        limit: int = LIST_LIMIT,
        caller: Caller | None = None,
        namespace: str = "",
    ) -> Names:
        """The last segments of the paths of documents of a ``listable`` collection, in order. ``path`` is the path of a
        document without its last segment."""
        index = self._index(namespace)
        bound, params = index.resolve_list(path)
        _check_caller(bound, LIST, params, caller)
        prefix = bound.path.prefix(params)
        if not key_is_safe(prefix):
            raise invalid_path()
        return self.list_documents(index, bound, prefix, after, min(limit, MAX_LIST_LIMIT))

    def list_documents(self, index: PathIndex, bound: BoundCollection, prefix: str, after: str, most: int) -> Names:
        """The last segments of the keys of the documents of a collection that start with ``prefix``."""
        return list_below(self.engine, prefix, after, most, lambda key: index.belongs(key, bound))

    def _now(self) -> int:
        with self.engine.lock:
            return self.engine.now()

    def _index(self, namespace: str) -> PathIndex:
        index = self.namespaces.get(namespace)
        if index is None:
            raise CollectionError("path_not_found", f"namespace {namespace!r} does not exist")
        return index

    def _document(
        self, path: str, op: str, caller: Caller | None, namespace: str, *, regular: bool
    ) -> tuple[DocumentPath, Caller | None]:
        """The path, and the caller with the role ``self`` if the document is the caller's own."""
        document = self._index(namespace).resolve(path, op)
        if document.is_regular is not regular:
            kind, use = ("append-only", "append and pull") if regular else ("a regular document", "push and read")
            raise CollectionError("path_not_found", f"the document {path!r} is {kind}; use {use}")
        caller = _check_caller(document.bound, op, document.params, caller)
        if not document.is_safe:
            raise invalid_path()
        return document, caller


def _config_of(declared: Iterable[Collection | Namespace]) -> CollectionsConfig:
    declared = tuple(declared)
    unknown = [f"{value!r} is not a Collection or a Namespace" for value in declared if not _is_declaration(value)]
    if unknown:
        raise BadCollections(unknown)
    return DeclaredCollections.of(declared).config()


def _is_declaration(value: object) -> bool:
    return isinstance(value, Collection | Namespace)


def _check_caller(bound: BoundCollection, op: str, params: Mapping[str, str], caller: Caller | None) -> Caller | None:
    if caller is not None:
        caller = with_self(caller, bound.path, params)
        check_access(bound.collection, op, caller)
    return caller


def _as_json(data: Mapping[str, Any], limit: int) -> tuple[dict[str, Any], bytes]:
    """Encode the data as JSON, within the limits for request bodies. Returns the parsed document and its text."""
    try:
        raw = canonical(dict(data))
        parsed: dict[str, Any] = parse(raw)
    except (NotJson, RecursionError, TypeError, ValueError) as error:
        raise CollectionError("invalid_data", f"the data must be a JSON object: {error}") from None
    if len(raw) > limit:
        raise CollectionError("too_large", f"the data has {len(raw)} bytes; the collection accepts at most {limit}")
    if is_deep(b'{"data":%b}' % raw):
        raise CollectionError("too_deep", "the data is nested too deeply")
    return parsed, raw


def _element(shown: dict[str, Any]) -> Element:
    proof = Proof(shown["authorPubkey"], shown["authorSignature"]) if "authorSignature" in shown else None
    return Element(shown["ts"], shown["data"], proof)
