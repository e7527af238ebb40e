"""Opening elements: is it by whom it should be, what does it say once decrypted, and is that of the right type."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from strandline.client.collection_types import Element
from strandline.client.errors import BadAnswer, Unreadable, WrongAuthor
from strandline.signing import author_proofs
from strandline.signing.author_proofs import Proof
from strandline.signing.wrapped_keys import CannotOpen

T = TypeVar("T")

#: False: nobody looks. True: the signature has to hold, whoever's it is. One key or several: it has to be theirs.
Authors = bool | str | Collection[str]


class Encrypting(Protocol):
    """What ``strandline.signing.keyring.Encryptor`` does."""

    def encrypt(self, document: dict[str, Any]) -> dict[str, Any]: ...

    def decrypt(self, element: dict[str, Any]) -> dict[str, Any]:
        """Raises CannotOpen."""


class Opening(Generic[T]):
    """How the elements of one document are opened."""

    def __init__(self, document_key: str, authors: Authors, encryptor: Encrypting | None, kind: Any) -> None:
        self._document_key = document_key
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
        """Raises WrongAuthor, Unreadable, and BadAnswer if the data is not of the type."""
        if self._verified:
            self._check_author(element)
        data: Any = element.data
        if self._encryptor is not None:
            try:
                data = self._encryptor.decrypt(data)
            except CannotOpen as error:
                raise Unreadable(element.ts, str(error)) from error
        if self._kind is not Any:
            try:
                data = msgspec.convert(data, self._kind)
            except msgspec.ValidationError as error:
                raise BadAnswer(f"the element at {element.ts} is not what was expected: {error}") from error
        return Element(element.ts, data, element.author, element.signature)

    def _check_author(self, element: Element[dict[str, Any]]) -> None:
        if element.author is None or element.signature is None:
            raise WrongAuthor(element.ts, "it is not signed")
        if self._authors is not None and element.author.lower() not in self._authors:
            raise WrongAuthor(element.ts, f"it is by {element.author}")
        proof = Proof(element.author, element.signature)
        if not author_proofs.holds_for(proof, self._document_key, element.data):
            raise WrongAuthor(element.ts, "the signature does not hold")
