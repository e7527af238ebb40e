"""Collections: append to documents and pull from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import time
from typing import Any, Generic, TypeVar, overload

from strandline.client import collection_calls as calls
from strandline.client.asynchronous.keyrings import AsyncSharedKeyring
from strandline.client.asynchronous.live import AsyncLive
from strandline.client.asynchronous.regular_documents import AsyncRegularDocument
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import Answer, Request
from strandline.client.collection_calls import (
    USUAL_FIELD,
    Appended,
    DocumentRequest,
    Element,
    ElementErrors,
    Entry,
    Pulled,
)
from strandline.client.credentials import Credentials, current
from strandline.client.elements import Authors, CursorState, Encrypting, Opening
from strandline.client.errors import BadRequest, Conflict, Refused
from strandline.client.live import ElementsState
from strandline.client.task_concurrency import AsyncLock, AsyncResult
from strandline.signing import author_proofs
from strandline.signing.author_proofs import Proof
from strandline.signing.keys import KemKey, Signer

T = TypeVar("T")


class AsyncSender:
    """Sends requests with a credential. Every attempt is signed separately."""

    def __init__(
        self,
        transport: AsyncTransport,
        credentials: Credentials | None,
        namespace: str | None,
        clock: Callable[[], float],
    ) -> None:
        self.transport = transport
        self._credentials = credentials
        self._clock = clock
        self.prefix = calls.prefix_of(namespace)

    def signing(self, *, anonymous: bool = False) -> calls.Signing:
        """The signer of the next request."""
        return calls.Signing(None if anonymous else current(self._credentials), self._url, self._clock)

    def _url(self) -> str:
        return self.transport.servers.current.url

    async def send(self, request: Request, signing: calls.Signing | None = None) -> Answer:
        return await self.transport.call(request, signing or self.signing())


class AsyncCollections:
    """The collections of a server or of one namespace, used with a credential or anonymously."""

    def __init__(
        self,
        transport: AsyncTransport,
        credentials: Credentials | None,
        namespace: str | None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._sender = AsyncSender(transport, credentials, namespace, clock)

    @overload
    def document(
        self, key: str, *, field: str = USUAL_FIELD, encryptor: Encrypting | None = None, verify: Authors = False
    ) -> AsyncDocument[Any]: ...

    @overload
    def document(
        self,
        key: str,
        type: type[T],
        *,
        field: str = USUAL_FIELD,
        encryptor: Encrypting | None = None,
        verify: Authors = False,
    ) -> AsyncDocument[T]: ...

    def document(
        self,
        key: str,
        type: Any = Any,
        *,
        field: str = USUAL_FIELD,
        encryptor: Encrypting | None = None,
        verify: Authors = False,
    ) -> AsyncDocument[Any]:
        """A document by its key, for example ``events/2024-01-15``. Data is decoded as ``type``.

        With an ``encryptor`` the server stores only encrypted data. ``verify`` selects which elements are accepted:
        False accepts all, True accepts every element with a valid signature, and one or several public keys accept
        only elements signed with one of them. A signature does not cover the time of an element.
        """
        return AsyncDocument(self._sender, key, Opening(key, verify, encryptor, type), encryptor, field)

    @overload
    def regular_document(
        self, key: str, *, encryptor: Encrypting | None = None, verify: Authors = False
    ) -> AsyncRegularDocument[Any]: ...

    @overload
    def regular_document(
        self, key: str, type: type[T], *, encryptor: Encrypting | None = None, verify: Authors = False
    ) -> AsyncRegularDocument[T]: ...

    def regular_document(
        self, key: str, type: Any = Any, *, encryptor: Encrypting | None = None, verify: Authors = False
    ) -> AsyncRegularDocument[Any]:
        """A regular document, which every push replaces as a whole. The parameters are those of ``document``."""
        opening: Opening[Any] = Opening(key, verify, encryptor, type, regular=True)
        return AsyncRegularDocument(self._sender, key, opening, encryptor)

    def keyring(self, key: str, kem: KemKey, *, trusted_adders: Collection[str]) -> AsyncSharedKeyring:
        """The keyring at a path, for example ``rooms/lobby/_keyring``, used by the owner of ``kem``. Only entries that
        were signed with one of the public keys ``trusted_adders`` are used, because a server could insert its own.
        Raises ValueError without a credential."""
        credential = self._sender.signing().credential
        if credential is None:
            raise ValueError("a keyring needs a credential: its entries are signed")
        return AsyncSharedKeyring(self.regular_document(key), credential.signer, kem, trusted_adders)

    async def batch_pull(self, asks: Mapping[str, Sequence[DocumentRequest]]) -> dict[str, list[Entry]]:
        """Pull from many documents in one request. Elements are returned as stored; ``opened`` of a document
        verifies and decrypts them."""
        answer = await self._sender.send(calls.batch_pull(self._sender.prefix, asks))
        return calls.read_batch(answer, asks)


class AsyncDocument(Generic[T]):
    """One document. Requests are sent only when a method is called; the document does not have to exist yet."""

    def __init__(
        self,
        sender: AsyncSender,
        key: str,
        opening: Opening[T],
        encryptor: Encrypting | None,
        field: str,
    ) -> None:
        self._sender = sender
        self.key = key
        self._opening = opening
        self._encryptor = encryptor
        self._field = field

    async def append(self, data: T, *, ts: int | None = None) -> Appended:
        """Append an element, signed with the key of the credential.

        With ``ts``, which must be greater than the time of the last element, the append is repeated until its outcome
        is known, and is applied at most once. Without ``ts`` the server assigns the time, and a lost answer raises
        Unreachable with ``sent=True``: the element may or may not have been appended.
        """
        document, signing = self._sealed(data), self._sender.signing()
        credential = signing.credential
        proof = None if credential is None else calls.proof_by(credential, self.key, document)
        return await self._append(document, ts, proof, signing)

    async def append_anonymous(self, data: T, *, ts: int | None = None, author: Signer | None = None) -> Appended:
        """Append an element without a credential, where the collection allows it. With ``author`` the element is signed
        with that key. Retries work as for ``append``."""
        document = self._sealed(data)
        proof = None if author is None else author_proofs.sign(author, self.key, document)
        return await self._append(document, ts, proof, self._sender.signing(anonymous=True))

    async def pull(
        self, *, since: int | None = None, last: int | None = None, limit: int | None = None, full: bool = False
    ) -> Pulled[T]:
        """Pull elements, verified and decrypted: those with a time greater than ``since``, limited to the newest
        ``last``. ``limit`` is an alias of ``last``. ``full`` returns all elements. A server may return only the oldest
        elements after ``since``; ``more`` is true then."""
        pulled = await self.pull_stored(since=since, last=last, limit=limit, full=full)
        return Pulled(self.opened(pulled.elements), pulled.hash, pulled.timestamp, pulled.more)

    async def pull_stored(
        self, *, since: int | None = None, last: int | None = None, limit: int | None = None, full: bool = False
    ) -> Pulled[dict[str, Any]]:
        """Like ``pull``, but returns elements as stored: not verified and not decrypted."""
        request = calls.pull(self._sender.prefix, self.key, since, last, limit, full)
        return calls.read_pulled(await self._sender.send(request), self._field)

    def opened(self, elements: Iterable[Element[dict[str, Any]]]) -> list[Element[T]]:
        """Verify and decrypt stored elements. Raises WrongAuthor, Unreadable."""
        return [self._opening.open(element) for element in elements]

    def cursor(
        self,
        items: Iterable[Element[Any] | Mapping[str, Any]] = (),
        *,
        since: int | None = None,
        on_element_error: ElementErrors = "throw",
        persist_encrypted: bool = False,
    ) -> AsyncAppendLogCursor[T]:
        """A cursor that holds elements and pulls only new ones.

        It starts with the ``items`` of an earlier cursor, after the time ``since``, or empty. If an element has the
        wrong author or cannot be decrypted, the pull fails and the cursor keeps its position; with
        ``on_element_error="skip"`` the element is skipped instead. With ``persist_encrypted`` the items stay
        encrypted, so that you can store them on disk.
        """
        state = CursorState(self._opening, items, since, on_element_error, persist_encrypted)
        return AsyncAppendLogCursor(self.pull_stored, state)

    def live(self, *, since: int | None = None) -> AsyncLive[Element[T]]:
        """The elements as they are appended, verified and decrypted: new ones, or first those with a time greater than
        ``since``. The reader survives broken connections without missing or repeating elements. An element that cannot
        be verified or decrypted raises WrongAuthor or Unreadable."""
        if since is not None and since < 0:
            raise ValueError("since must not be negative")
        state = ElementsState(
            calls.live_target(self._sender.prefix, self.key),
            since,
            self._opening,
            lambda request: self._sender.signing()(request),
        )
        return AsyncLive(self._sender.transport, state)

    def _sealed(self, data: T) -> dict[str, Any]:
        document = calls.document_of(data)
        return document if self._encryptor is None else self._encryptor.encrypt(document)

    async def _append(
        self, document: dict[str, Any], ts: int | None, proof: Proof | None, signing: calls.Signing
    ) -> Appended:
        request = calls.append(self._sender.prefix, self.key, document, ts, proof)
        try:
            return calls.read_appended(await self._sender.send(request, signing))
        except Conflict as conflict:
            if ts is None or proof is None or signing.tries < 2 or conflict.code != "non_monotonic_timestamp":
                raise
            # An earlier attempt may have succeeded; then the conflict is with the element of that attempt.
            if not await self._holds(ts, proof):
                raise
            return Appended(None, ts)

    async def _holds(self, ts: int, proof: Proof) -> bool:
        try:
            if ts == 0:
                pulled = await self.pull_stored(full=True)
            else:
                pulled = await self.pull_stored(since=ts - 1)
        except Refused:
            return False
        return any(element.ts == ts and (element.author, element.signature) == proof for element in pulled.elements)


# --- cursors over documents -----------------------------------------------------------------------------------------


class AsyncAppendLogCursor(Generic[T]):
    """Holds the elements of a document and pulls only new ones. ``cursor`` of a document creates one."""

    def __init__(self, pull: Callable[..., AsyncResult[Pulled[dict[str, Any]]]], state: CursorState[T]) -> None:
        self._pull = pull
        self._state = state
        # Concurrent pulls would fetch the same elements.
        self._lock = AsyncLock()

    async def pull(self) -> list[Element[T]]:
        """The elements since the last pull, verified and decrypted. Raises WrongAuthor or Unreadable unless such
        elements are skipped. After an error the cursor is unchanged, and the next pull starts at the same position."""
        async with self._lock:
            pulled = await self._first()
            elements = pulled.elements
            while pulled.more and pulled.elements:
                pulled = await self._pull(since=pulled.elements[-1].ts)
                elements += pulled.elements
            return self._state.take(elements)

    async def _first(self) -> Pulled[dict[str, Any]]:
        if not self._state.is_cold:
            return await self._pull(since=self._state.checkpoint)
        try:
            return await self._pull(full=True)
        except BadRequest as refused:
            if refused.code != "full_not_allowed":
                raise
        # Some collections return elements only part by part.
        return await self._pull(since=0)

    @property
    def items(self) -> list[Element[Any]]:
        """All elements that the cursor holds. Store them and pass them to a later cursor. They are encrypted with
        ``persist_encrypted``, otherwise as ``pull`` returns them. ``msgspec.json.encode`` writes them as JSON."""
        return self._state.items.copy()

    def decrypted_items(self) -> list[Element[T]]:
        """All elements that the cursor holds, verified and decrypted."""
        return self._state.opened_items()

    @property
    def skipped(self) -> int:
        """The number of elements that this cursor has skipped."""
        return self._state.skipped

    @property
    def checkpoint(self) -> int:
        """The time of the last element that was pulled or skipped; 0 if there is none."""
        return self._state.checkpoint

    def set_checkpoint(self, ts: int) -> None:
        """Continue after this time. Raises ValueError if the cursor holds a later element."""
        self._state.move(ts)
