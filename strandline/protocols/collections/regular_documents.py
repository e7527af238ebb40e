"""Pulls of regular documents: one document, with its keyring if the caller asks for it, or all of a bundle."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from inspect import isawaitable

from msgspec import UNSET, UnsetType

from strandline.collections.config import READ, Collection
from strandline.collections.errors import invalid_path
from strandline.collections.paths import BoundCollection, BundlePath, DocumentPath, PathIndex, values_fit
from strandline.collections.permissions import UNIDENTIFIED, Caller, hidden_fields, may
from strandline.collections.pull import is_expired, without
from strandline.collections.rate_limits import PULL
from strandline.collections.regular_documents import MISSING, DocumentVersion
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.wire import (
    BundleAnswer,
    DocumentAnswer,
    EntryAnswer,
    KeyringAnswer,
    MemberAnswer,
    encode,
    stored_object,
)
from strandline.service.admission import Replying
from strandline.service.http import Call, Reply
from strandline.signing.author_proofs import proof_of

#: The last segment of the path of a keyring, below the path of the document that it belongs to.
KEYRING = "_keyring"
_TRUE = ("true", "1")


class RegularDocumentHandler:
    """Pulls regular documents of one namespace. Access to the document itself has been checked."""

    def __init__(self, context: CollectionsContext, index: PathIndex) -> None:
        self._context = context
        self._index = index

    def pull(self, call: Call, path: DocumentPath, caller: Caller) -> Replying:
        with_keyring = call.query.get("withKeyring", "").lower() in _TRUE
        version = self._resident(path.key)
        if version is None or with_keyring:
            return self._pull_later(call, path, caller, with_keyring)
        return self._answer(call, path, caller, version)

    async def _pull_later(self, call: Call, path: DocumentPath, caller: Caller, with_keyring: bool) -> Reply:
        keyring = await self._keyring(path, caller) if with_keyring else UNSET
        return self._answer(call, path, caller, await self._read(path.key), keyring)

    def _answer(
        self,
        call: Call,
        path: DocumentPath,
        caller: Caller,
        version: DocumentVersion,
        keyring: KeyringAnswer | UnsetType | None = UNSET,
    ) -> Reply:
        collection, now = path.collection, self._context.hub.now()
        if version is MISSING or is_expired(collection, version.ts, now):
            return Reply(encode(DocumentAnswer({}, "", now, keyring=keyring)))
        etag = b'"%b"' % version.hash.encode()
        # The hash says nothing about the keyring, which may have changed.
        if keyring is UNSET and call.head.headers.get(b"if-none-match") == etag:
            return Reply(b"", 304)
        proof = proof_of(version.meta)
        author, signature = (UNSET, UNSET) if proof is None else proof
        data = stored_object(without(version.data, hidden_fields(collection, caller.roles)))
        answer = DocumentAnswer(data, version.hash, now, author, signature, keyring)
        return Reply(encode(answer), headers=((b"etag", etag), *self._context.cache_control(collection)))

    async def entry(self, collection: Collection, key: str, caller: Caller) -> EntryAnswer:
        """The document in a batch. An expired document keeps its hash there, as published."""
        version, now = await self._read(key), self._context.hub.now()
        if is_expired(collection, version.ts, now):
            return EntryAnswer({}, version.hash, now)
        data = without(version.data, hidden_fields(collection, caller.roles))
        return EntryAnswer(stored_object(data), version.hash, now)

    async def pull_bundle(self, call: Call, path: BundlePath) -> Reply:
        """All documents of a bundle that the caller may read."""
        context = self._context
        caller: Caller | Awaitable[Caller] = UNIDENTIFIED
        if not all(bound.collection.is_open(READ) for bound in path.members):
            caller = context.authorizer.identify(call, context.hub.wall(), path.params)
        caller = await caller if isawaitable(caller) else caller
        if not path.is_safe:
            raise invalid_path()
        shown: dict[str, MemberAnswer] = {}
        for bound in path.members:
            reader = await self._reader(bound, caller, path.params)
            if reader is None or bound.collection.push_only or not self._shows(bound, reader, path.params):
                continue
            context.check_rate(bound, PULL, reader, call, context.hub.now())
            shown[bound.collection.name] = await self._member(bound, path.params, reader)
        return Reply(encode(BundleAnswer(shown, context.hub.now())))

    def _shows(self, bound: BoundCollection, caller: Caller, params: Mapping[str, str]) -> bool:
        """Whether a bundle shows a member: in a strict collection only if a pull of the document itself would."""
        if not bound.collection.strict:
            return True
        key, scope = bound.path.key(params), caller.scope
        covered = scope is None or bound.collection.is_open(READ) or scope.covers(key, caller.identity)
        return covered and self._index.serves(key, bound)

    async def _member(self, bound: BoundCollection, params: Mapping[str, str], caller: Caller) -> MemberAnswer:
        collection = bound.collection
        version = MISSING if not collection.is_stored else await self._read(bound.path.key(params))
        if is_expired(collection, version.ts, self._context.hub.now()):
            version = MISSING
        data = without(version.data, hidden_fields(collection, caller.roles))
        return MemberAnswer(stored_object(data), version.hash)

    async def _keyring(self, path: DocumentPath, caller: Caller) -> KeyringAnswer | UnsetType | None:
        """The keyring of a document; None if it does not exist, UNSET if the caller may not read it. In a strict
        collection the caller needs a role for it, otherwise only a certificate that covers its path."""
        key = f"{path.key}/{KEYRING}"
        if caller.scope is not None and not caller.scope.covers(key, caller.identity):
            return UNSET
        found = self._index.find(key.split("/"), READ)
        if found is None or found.bound.collection.append_only is not None or not values_fit(found.params):
            return None
        collection = found.bound.collection
        reader = await self._reader(found.bound, caller, found.params)
        if reader is None and collection.strict:
            return UNSET
        version, now = await self._read(key), self._context.hub.now()
        if version is MISSING or is_expired(collection, version.ts, now):
            return None
        data = without(version.data, hidden_fields(collection, (reader or caller).roles))
        return KeyringAnswer(stored_object(data), version.hash, now)

    async def _reader(self, bound: BoundCollection, caller: Caller, params: Mapping[str, str]) -> Caller | None:
        """The caller with the roles for a document, or None if they do not allow reading it."""
        enriched = self._context.authorizer.enrich(caller, bound, params)
        caller = await enriched if isawaitable(enriched) else enriched
        return caller if may(bound.collection, READ, caller) else None

    def _resident(self, key: str) -> DocumentVersion | None:
        document = self._context.regular_documents.find(key)
        return MISSING if document is None else document.version()

    async def _read(self, key: str) -> DocumentVersion:
        version = self._resident(key)
        if version is not None:
            return version
        document = self._context.regular_documents.find(key)
        if document is None:
            return MISSING
        return await self._context.workers.normal.run(document.version_from_disk, part=READ)
