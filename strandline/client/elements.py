"""Elements of documents: verification, decryption, conversion, and the state of a cursor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from strandline.client.collection_calls import DocumentVersion, Element, ElementErrors
from strandline.client.errors import BadAnswer, BadElement, Unreadable, WrongAuthor
from strandline.signing import author_proofs
from strandline.signing.author_proofs import Proof
from strandline.signing.wrapped_keys import CannotOpen

T = TypeVar("T")

#: False accepts every element, True every valid signature, one or several keys only signatures of these keys.
Authors = bool | str | Collection[str]


class Encrypting(Protocol):
    """The interface of ``strandline.signing.keyring.Encryptor``."""

    def encrypt(self, document: dict[str, Any]) -> dict[str, Any]: ...

    def decrypt(self, element: dict[str, Any]) -> dict[str, Any]:
        """Raises CannotOpen."""


class Opening(Generic[T]):
    """Verifies, decrypts and converts the elements of one document, or the document itself if it is ``regular``."""

    def __init__(
        self,
        document_key: str,
        authors: Authors,
        encryptor: Encrypting | None,
        kind: Any,
        *,
        regular: bool = False,
    ) -> None:
        self._document_key = document_key
        self._domain = author_proofs.DOCUMENT_DOMAIN if regular else author_proofs.DOMAIN
        self._what = f"the document {document_key}" if regular else None
        self._verified = authors is not False
        self._authors: frozenset[str] | None = None
        if not isinstance(authors, bool):
            keys = [authors] if isinstance(authors, str) else authors
            self._authors = frozenset(key.lower() for key in keys)
        self._encryptor = encryptor
        self._kind = kind

    @property
    def decrypts(self) -> bool:
        return self._encryptor is not None

    def open(self, element: Element[dict[str, Any]]) -> Element[T]:
        """Raises WrongAuthor, Unreadable, or BadAnswer if the data does not have the expected type."""
        if self._verified:
            self._check_author(element)
        data: Any = element.data
        if self._encryptor is not None:
            try:
                data = self._encryptor.decrypt(data)
            except CannotOpen as error:
                raise Unreadable(element.ts, str(error), self._what) from error
        if self._kind is not Any:
            try:
                data = msgspec.convert(data, self._kind)
            except msgspec.ValidationError as error:
                what = self._what or f"the element at {element.ts}"
                raise BadAnswer(f"{what} has unexpected data: {error}") from error
        return Element(element.ts, data, element.author, element.signature)

    def open_version(self, version: DocumentVersion[dict[str, Any]]) -> DocumentVersion[T]:
        """The same for a version of a regular document."""
        if version.data is None:
            return DocumentVersion(None, "", version.timestamp)
        opened = self.open(Element(version.timestamp, version.data, version.author, version.signature))
        return DocumentVersion(opened.data, version.hash, version.timestamp, version.author, version.signature)

    def _check_author(self, element: Element[dict[str, Any]]) -> None:
        if element.author is None or element.signature is None:
            raise WrongAuthor(element.ts, "it is not signed", self._what)
        if self._authors is not None and element.author.lower() not in self._authors:
            raise WrongAuthor(element.ts, f"its author {element.author} is not accepted", self._what)
        proof = Proof(element.author, element.signature)
        if not author_proofs.holds_for(proof, self._document_key, element.data, self._domain):
            raise WrongAuthor(element.ts, "its signature is invalid", self._what)


# --- cursors --------------------------------------------------------------------------------------------------------


#: Before the first element: the times of elements start at 0.
_NOTHING = -1


class CursorState(Generic[T]):
    """The state of a cursor, without its connection."""

    def __init__(
        self,
        opening: Opening[T],
        items: Iterable[Element[Any] | Mapping[str, Any]],
        since: int | None,
        on_element_error: ElementErrors,
        persist_encrypted: bool,
    ) -> None:
        if on_element_error not in ("throw", "skip"):
            raise ValueError(f'on_element_error must be "throw" or "skip", got {on_element_error!r}')
        self._opening = opening
        self._skips = on_element_error == "skip"
        self._keeps_sealed = persist_encrypted
        self.items: list[Element[Any]] = [_element(item) for item in items]
        self._position = _last_ts(self.items)
        self.skipped = 0
        if since is not None:
            self.move(since)

    @property
    def checkpoint(self) -> int:
        return max(self._position, 0)

    @property
    def is_cold(self) -> bool:
        """Whether the next pull must request the whole document. The checkpoint 0 is ambiguous: it means no element,
        or one at time 0."""
        return self._position <= 0

    def move(self, checkpoint: int) -> None:
        """Continue after this time. Raises ValueError if the cursor holds a later element."""
        if checkpoint < 0:
            raise ValueError(f"a checkpoint must not be negative, got {checkpoint}")
        if checkpoint < _last_ts(self.items):
            raise ValueError(
                f"the checkpoint {checkpoint} is before the last element that the cursor holds, {_last_ts(self.items)}"
            )
        # A checkpoint of 0 does not mean that an element at time 0 was read, so it keeps the position.
        self._position = checkpoint or self._position

    def take(self, elements: Iterable[Element[dict[str, Any]]]) -> list[Element[T]]:
        """Open the new elements. If one of them cannot be opened and is not skipped, the state is unchanged."""
        opened: list[Element[T]] = []
        kept: list[Element[Any]] = []
        position, skipped = self._position, 0
        for element in elements:
            if element.ts <= position:
                continue
            position = element.ts
            plain = self._opened(element)
            if plain is None:
                skipped += 1
            else:
                opened.append(plain)
            if self._keeps_sealed:
                # An element that cannot be decrypted now may become readable with a later key.
                kept.append(element)
            elif plain is not None:
                kept.append(plain)
        self.items += kept
        self._position = position
        self.skipped += skipped
        return opened

    def opened_items(self) -> list[Element[T]]:
        """All elements that the cursor holds, opened."""
        if not self._keeps_sealed:
            return self.items.copy()
        found = map(self._opened, self.items)
        return [element for element in found if element is not None]

    def _opened(self, element: Element[dict[str, Any]]) -> Element[T] | None:
        try:
            return self._opening.open(element)
        except (BadElement, BadAnswer):
            if not self._skips:
                raise
            return None


def _element(item: Element[Any] | Mapping[str, Any]) -> Element[Any]:
    return item if isinstance(item, Element) else msgspec.convert(item, Element[Any])


def _last_ts(items: Iterable[Element[Any]]) -> int:
    return max((item.ts for item in items), default=_NOTHING)
