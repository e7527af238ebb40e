# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Collections: appending to documents and pulling from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time
from typing import Any, Generic, TypeVar, overload

from strandline.client import collection_calls as calls
from strandline.client.calls import Answer, Request
from strandline.client.collection_calls import USUAL_FIELD, Appended, Ask, Element, ElementErrors, Entry, Pulled
from strandline.client.concurrency import SyncLock, SyncResult
from strandline.client.credentials import Credentials, current
from strandline.client.elements import Authors, CursorState, Encrypting, Opening
from strandline.client.errors import BadRequest, Conflict, Refused
from strandline.client.synchronous.transport import Transport
from strandline.signing import author_proofs
from strandline.signing.author_proofs import Proof
from strandline.signing.keys import Signer
from strandline.signing.signed_requests import host_of

T = TypeVar("T")


class Sender:
    """Sends requests as the holder of a credential, each try of one signed afresh."""

    def __init__(
        self,
        transport: Transport,
        credentials: Credentials | None,
        namespace: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._clock = clock
        self._host = host_of(transport.address.url)
        self.prefix = calls.prefix_of(namespace)

    def signing(self, *, anonymous: bool = False) -> calls.Signing:
        """For the next request."""
        return calls.Signing(None if anonymous else current(self._credentials), self._host, self._clock)

    def send(self, request: Request, signing: calls.Signing | None = None) -> Answer:
        return self._transport.call(request, signing or self.signing())


class Collections:
    """The collections of a server, or of one namespace of it, as the holder of a credential or as nobody."""

    def __init__(
        self,
        transport: Transport,
        credentials: Credentials | None,
        namespace: str | None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._sender = Sender(transport, credentials, namespace, clock)

    @overload
    def document(
        self, key: str, *, field: str = USUAL_FIELD, encryptor: Encrypting | None = None, verify: Authors = False
    ) -> Document[Any]: ...

    @overload
    def document(
        self,
        key: str,
        type: type[T],
        *,
        field: str = USUAL_FIELD,
        encryptor: Encrypting | None = None,
        verify: Authors = False,
    ) -> Document[T]: ...

    def document(
        self,
        key: str,
        type: Any = Any,
        *,
        field: str = USUAL_FIELD,
        encryptor: Encrypting | None = None,
        verify: Authors = False,
    ) -> Document[Any]:
        """A document by its key, such as ``events/2024-01-15``, whose data is read as ``type``.

        With an ``encryptor`` the server sees only what is encrypted. ``verify`` is whose elements are accepted: of
        anybody who has signed them (True), or of the owner of a key, or of several; False accepts all of them. A
        signature does not cover the time of an element.
        """
        return Document(self._sender, key, Opening(key, verify, encryptor, type), encryptor, field)

    def batch_pull(self, asks: Mapping[str, Sequence[Ask]]) -> dict[str, list[Entry]]:
        """Pull from many documents in one request, by the names of their collections. Elements are as they are stored;
        ``AsyncDocument.opened`` verifies and decrypts them."""
        answer = self._sender.send(calls.batch_pull(self._sender.prefix, asks))
        return calls.read_batch(answer, asks)


class Document(Generic[T]):
    """One document. Nothing is asked of the server before a method is called: the document need not exist yet."""

    def __init__(
        self,
        sender: Sender,
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

    def append(self, data: T, *, ts: int | None = None) -> Appended:
        """Append an element, signed with the key of the credential.

        With a ``ts``, which has to be greater than that of the last element, the append is tried again until it is
        known to be done, and is never done twice. Without one the server gives the time, and if the answer is lost on
        the way, Unreachable is raised with ``sent``: nobody knows then whether it was done.
        """
        document, signing = self._sealed(data), self._sender.signing()
        credential = signing.credential
        proof = None if credential is None else calls.proof_by(credential, self.key, document)
        return self._append(document, ts, proof, signing)

    def append_anonymous(self, data: T, *, ts: int | None = None, author: Signer | None = None) -> Appended:
        """Append an element without saying who asks, where everybody may; signed as the author's, if one is given. It
        is tried again as ``append`` is."""
        document = self._sealed(data)
        proof = None if author is None else author_proofs.sign(author, self.key, document)
        return self._append(document, ts, proof, self._sender.signing(anonymous=True))

    def pull(
        self, *, since: int | None = None, last: int | None = None, limit: int | None = None, full: bool = False
    ) -> Pulled[T]:
        """Elements, verified and decrypted: those with a time greater than ``since``, and of those the newest ``last``.
        ``limit`` is another word for ``last``. ``full`` is for all of them. A server may give only the oldest behind
        ``since`` at a time: then ``more`` is true."""
        pulled = self.pull_stored(since=since, last=last, limit=limit, full=full)
        return Pulled(self.opened(pulled.elements), pulled.hash, pulled.timestamp, pulled.more)

    def pull_stored(
        self, *, since: int | None = None, last: int | None = None, limit: int | None = None, full: bool = False
    ) -> Pulled[dict[str, Any]]:
        """The same, as it is stored: not verified, not decrypted."""
        request = calls.pull(self._sender.prefix, self.key, since, last, limit, full)
        return calls.read_pulled(self._sender.send(request), self._field)

    def opened(self, elements: Iterable[Element[dict[str, Any]]]) -> list[Element[T]]:
        """Elements as they are stored, verified and decrypted. Raises WrongAuthor, Unreadable."""
        return [self._opening.open(element) for element in elements]

    def cursor(
        self,
        items: Iterable[Element[Any] | Mapping[str, Any]] = (),
        *,
        since: int | None = None,
        on_element_error: ElementErrors = "throw",
        persist_encrypted: bool = False,
    ) -> AppendLogCursor[T]:
        """A cursor that holds the elements and pulls only what is new.

        It begins with the ``items`` of an earlier one, or behind a time, or with nothing. An element that is not by
        whom it should be or cannot be decrypted makes a pull fail, and the cursor stays where it was; or it is
        skipped. With ``persist_encrypted`` the items stay encrypted, so that they can be kept on a disk.
        """
        state = CursorState(self._opening, items, since, on_element_error, persist_encrypted)
        return AppendLogCursor(self.pull_stored, state)

    def _sealed(self, data: T) -> dict[str, Any]:
        document = calls.document_of(data)
        return document if self._encryptor is None else self._encryptor.encrypt(document)

    def _append(
        self, document: dict[str, Any], ts: int | None, proof: Proof | None, signing: calls.Signing
    ) -> Appended:
        request = calls.append(self._sender.prefix, self.key, document, ts, proof)
        try:
            return calls.read_appended(self._sender.send(request, signing))
        except Conflict as conflict:
            if ts is None or proof is None or signing.tries < 2 or conflict.code != "non_monotonic_timestamp":
                raise
            # An earlier try may have been done: then it is its own element that this one comes too late for.
            if not self._holds(ts, proof):
                raise
            return Appended(None, ts)

    def _holds(self, ts: int, proof: Proof) -> bool:
        try:
            if ts == 0:
                pulled = self.pull_stored(full=True)
            else:
                pulled = self.pull_stored(since=ts - 1)
        except Refused:
            return False
        return any(element.ts == ts and (element.author, element.signature) == proof for element in pulled.elements)


# --- cursors over documents -----------------------------------------------------------------------------------------


class AppendLogCursor(Generic[T]):
    """Holds the elements of a document, and pulls only what is new. ``AsyncDocument.cursor`` makes one."""

    def __init__(self, pull: Callable[..., SyncResult[Pulled[dict[str, Any]]]], state: CursorState[T]) -> None:
        self._pull = pull
        self._state = state
        # Two pulls at a time would get the same elements.
        self._lock = SyncLock()

    def pull(self) -> list[Element[T]]:
        """What is new since the last pull, verified and decrypted. Raises WrongAuthor, Unreadable, unless such elements
        are skipped; then nothing has happened, and the next pull begins at the same place."""
        with self._lock:
            pulled = self._first()
            elements = pulled.elements
            while pulled.more and pulled.elements:
                pulled = self._pull(since=pulled.elements[-1].ts)
                elements += pulled.elements
            return self._state.take(elements)

    def _first(self) -> Pulled[dict[str, Any]]:
        if not self._state.is_cold:
            return self._pull(since=self._state.checkpoint)
        try:
            return self._pull(full=True)
        except BadRequest as refused:
            if refused.code != "full_not_allowed":
                raise
        # Some collections are only given part by part.
        return self._pull(since=0)

    @property
    def items(self) -> list[Element[Any]]:
        """All elements that are held, to be kept and given to a later cursor: encrypted with ``persist_encrypted``,
        else as ``pull`` gives them. ``msgspec.json.encode`` writes them as the protocol does."""
        return self._state.items.copy()

    def decrypted_items(self) -> list[Element[T]]:
        """All elements that are held, verified and decrypted."""
        return self._state.opened_items()

    @property
    def skipped(self) -> int:
        """How many elements were skipped since this cursor was made."""
        return self._state.skipped

    @property
    def checkpoint(self) -> int:
        """The time of the last element that was pulled or skipped; 0 if there was none."""
        return self._state.checkpoint

    def set_checkpoint(self, ts: int) -> None:
        """Go on behind this time. Raises ValueError if that is before the last element that is held."""
        self._state.move(ts)
