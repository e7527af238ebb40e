"""Regular documents: replaced as a whole, if they have not changed since they were read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from strandline.client import collection_calls as calls
from strandline.client.asynchronous.live import AsyncLive
from strandline.client.collection_calls import DocumentVersion, Pushed
from strandline.client.elements import Encrypting, Opening
from strandline.client.errors import Conflict
from strandline.client.live import VersionsState
from strandline.signing.author_proofs import DOCUMENT_DOMAIN
from strandline.signing.canonical_json import digest

if TYPE_CHECKING:
    from strandline.client.asynchronous.collections import AsyncSender

T = TypeVar("T")

#: How often an update is tried. Each attempt fails only because another writer succeeded.
MAX_ATTEMPTS = 20


class AsyncRegularDocument(Generic[T]):
    """One regular document. Requests are sent only when a method is called; the document does not have to exist yet."""

    def __init__(self, sender: AsyncSender, key: str, opening: Opening[T], encryptor: Encrypting | None) -> None:
        self._sender = sender
        self.key = key
        self._opening = opening
        self._encryptor = encryptor

    async def pull(self) -> DocumentVersion[T]:
        """The current version, verified and decrypted. Raises WrongAuthor, Unreadable."""
        told = calls.read_document(await self._sender.send(calls.pull_document(self._sender.prefix, self.key)))
        return self._opening.open_version(told)

    def live(self, *, base_hash: str | None = None) -> AsyncLive[DocumentVersion[T]]:
        """The current version, unless its hash is ``base_hash``, and then every version that replaces it, verified and
        decrypted. The reader survives broken connections; versions that were replaced in the meantime are left out. A
        version that cannot be verified or decrypted raises WrongAuthor or Unreadable."""
        state = VersionsState(
            calls.live_target(self._sender.prefix, self.key),
            base_hash,
            self._opening,
            lambda request: self._sender.signing()(request),
        )
        return AsyncLive(self._sender.transport, state)

    async def push(self, data: T, *, base_hash: str | None = None) -> Pushed:
        """Replace the version with the hash ``base_hash``; without it, create the document. The version is signed with
        the key of the credential. Raises Conflict with the code ``hash_mismatch`` if the document has another version;
        ``detail["currentHash"]`` is its hash. A push whose answer is lost is repeated, and applied once."""
        document: dict[str, Any] = calls.document_of(data)
        if self._encryptor is not None:
            document = self._encryptor.encrypt(document)
        signing = self._sender.signing()
        credential = signing.credential
        proof = None if credential is None else calls.proof_by(credential, self.key, document, DOCUMENT_DOMAIN)
        request = calls.push(self._sender.prefix, self.key, document, base_hash, proof)
        try:
            return calls.read_pushed(await self._sender.send(request, signing))
        except Conflict as conflict:
            hash = digest(document)
            if signing.tries < 2 or conflict.detail.get("currentHash") != hash:
                raise
            # An earlier attempt has succeeded, and the conflict is with its version.
            return Pushed(hash, None)

    async def update(self, change: Callable[[T | None], T | None]) -> Pushed | None:
        """Call ``change`` with the current data, or None if the document does not exist, and replace the document by
        the result. If the result is None, the document stays as it is. If another writer replaces it in the meantime,
        ``change`` is called again with the new data. Raises Conflict if that happens too often."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            current = await self.pull()
            changed = change(current.data)
            if changed is None:
                return None
            try:
                return await self.push(changed, base_hash=current.hash or None)
            except Conflict as conflict:
                if conflict.code != "hash_mismatch" or attempt == MAX_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")
