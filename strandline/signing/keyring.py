"""Keyrings: the content keys of a collection, each wrapped for all of its readers.

A keyring has epochs, each with its own content key. A new recipient is added to the current epoch. To remove a
recipient, start a new epoch without them. Data written in an epoch stays readable for the recipients of that epoch.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable
from secrets import token_bytes
from typing import Any, NamedTuple, Self

import msgspec

from strandline.signing.canonical_json import NotJson, parse
from strandline.signing.keys import KemKey, Signer
from strandline.signing.wrapped_keys import (
    CONTENT_KEY_BYTES,
    CannotOpen,
    WrappedKey,
    decrypt,
    encrypt,
    is_signed,
    unwrap,
    wrap,
)

#: The members of an encrypted element.
ENCRYPTED, EPOCH = "_encrypted", "_epoch"

_BLOB_EPOCH_BYTES = 4


class BadKeyring(ValueError):
    """A document that is not a keyring, an impossible change to a keyring, or a keyring that must not be trusted."""


class Epoch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    wrapped_keys: tuple[WrappedKey, ...] = ()
    created_at: int = 0

    def entries_for(self, recipient: str) -> list[WrappedKey]:
        return [entry for entry in self.wrapped_keys if entry.sub_kem == recipient]


class Keyring(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    current_epoch: int
    epochs: dict[str, Epoch]
    v: int = 1

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Return a keyring from parsed JSON. Raises BadKeyring."""
        try:
            keyring = msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise BadKeyring(f"invalid keyring: {error}") from None
        if not all(number.isascii() and number.isdigit() for number in keyring.epochs):
            raise BadKeyring("invalid keyring: the names of epochs must be numbers")
        return keyring

    def document(self) -> dict[str, Any]:
        """Return the keyring as JSON values."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return document

    def recipients(self) -> list[str]:
        """The keys of the recipients that can read data written from now on."""
        return [entry.sub_kem for entry in self.current().wrapped_keys]

    def current(self) -> Epoch:
        """The current epoch. Raises BadKeyring."""
        epoch = self.epochs.get(str(self.current_epoch))
        if epoch is None:
            raise BadKeyring(f"the keyring has no epoch {self.current_epoch}")
        return epoch


class Changed(NamedTuple):
    """A keyring and the content key of its current epoch."""

    keyring: Keyring
    content_key: bytes


def create(adder: Signer, recipients: Iterable[str], *, now_s: int, content_key: bytes | None = None) -> Changed:
    """Create a keyring for the owners of these keys. Raises BadKey."""
    return _with_epoch({}, 1, adder, recipients, now_s, content_key)


def add_recipient(keyring: Keyring, adder: Signer, content_key: bytes, recipient: str, *, now_s: int) -> Keyring:
    """Return the keyring with another recipient of the current epoch. Raises BadKeyring, BadKey."""
    epoch, number = keyring.current(), keyring.current_epoch
    if epoch.entries_for(recipient):
        raise BadKeyring(f"{recipient} is already in epoch {number}")
    entry = wrap(content_key, recipient, adder, epoch=number, now_s=now_s)
    changed = msgspec.structs.replace(epoch, wrapped_keys=(*epoch.wrapped_keys, entry))
    return msgspec.structs.replace(keyring, epochs={**keyring.epochs, str(number): changed})


def rotate(keyring: Keyring, adder: Signer, retained: Iterable[str], *, now_s: int) -> Changed:
    """Return the keyring with a new epoch that only the owners of the retained keys can read. Raises BadKey."""
    return _with_epoch(keyring.epochs, keyring.current_epoch + 1, adder, retained, now_s, None)


def trusted_recipients(keyring: Keyring, trusted_adders: Collection[str]) -> list[str]:
    """The recipients of the current epoch whose entries were signed by one of ``trusted_adders``. Raises BadKeyring."""
    number = keyring.current_epoch
    return [
        entry.sub_kem
        for entry in keyring.current().wrapped_keys
        if entry.added_by in trusted_adders and is_signed(entry, number)
    ]


class Encryptor:
    """Encrypts and decrypts with the keyring as one recipient.

    Only entries signed by one of ``trusted_adders`` are used, because a server could insert its own entries. A keyring
    whose current epoch is below ``min_epoch`` was rolled back and is refused. Raises BadKeyring.
    """

    def __init__(
        self,
        keyring: Keyring | dict[str, Any],
        recipient: KemKey,
        trusted_adders: Collection[str],
        min_epoch: int | None = None,
    ) -> None:
        keyring = keyring if isinstance(keyring, Keyring) else Keyring.parse(keyring)
        if not trusted_adders or isinstance(trusted_adders, str):
            raise BadKeyring("no trusted adders given; pass at least one key whose entries are trusted")
        if min_epoch is not None and keyring.current_epoch < min_epoch:
            raise BadKeyring(f"the keyring is at epoch {keyring.current_epoch}; expected {min_epoch} or later")
        self.current_epoch = keyring.current_epoch
        self._content_keys = _content_keys(keyring, recipient, frozenset(trusted_adders))
        if self.current_epoch not in self._content_keys:
            raise BadKeyring(f"the keyring has no usable key of epoch {self.current_epoch} for {recipient.public}")

    @property
    def content_key(self) -> bytes:
        """The content key of the current epoch, for adding recipients."""
        return self._content_keys[self.current_epoch]

    def encrypt(self, document: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(document, separators=(",", ":")).encode()
        encrypted = encrypt(self.content_key, text, str(self.current_epoch).encode())
        return {ENCRYPTED: b64encode(encrypted).decode(), EPOCH: self.current_epoch}

    def decrypt(self, element: dict[str, Any]) -> dict[str, Any]:
        """Return the element that was passed to ``encrypt``, by any recipient. Raises CannotOpen."""
        epoch = element.get(EPOCH)
        epoch = epoch if type(epoch) is int else self.current_epoch
        text = element.get(ENCRYPTED)
        if not isinstance(text, str):
            raise CannotOpen("the element is not encrypted")
        try:
            document = parse(decrypt(self._key_of(epoch), b64decode(text, validate=True), str(epoch).encode()))
        except CannotOpen:
            raise
        except (NotJson, ValueError) as error:
            raise CannotOpen("the encrypted data is not a JSON object") from error
        if not isinstance(document, dict):
            raise CannotOpen("the encrypted data is not a JSON object")
        return document

    def seal_bytes(self, data: bytes, context: str = "") -> bytes:
        """Encrypt bytes. They can be decrypted only with the same context, such as the path they are stored at."""
        header = self.current_epoch.to_bytes(_BLOB_EPOCH_BYTES, "big")
        return header + encrypt(self.content_key, data, _blob_context(self.current_epoch, context))

    def open_bytes(self, blob: bytes, context: str = "") -> bytes:
        """Decrypt bytes. Raises CannotOpen."""
        epoch = int.from_bytes(blob[:_BLOB_EPOCH_BYTES], "big")
        return decrypt(self._key_of(epoch), blob[_BLOB_EPOCH_BYTES:], _blob_context(epoch, context))

    def _key_of(self, epoch: int) -> bytes:
        try:
            return self._content_keys[epoch]
        except KeyError:
            raise CannotOpen(f"no key for epoch {epoch}: this recipient was not part of it") from None


def _with_epoch(
    epochs: dict[str, Epoch],
    number: int,
    adder: Signer,
    recipients: Iterable[str],
    now_s: int,
    content_key: bytes | None,
) -> Changed:
    content_key = content_key or token_bytes(CONTENT_KEY_BYTES)
    entries = tuple(wrap(content_key, each, adder, epoch=number, now_s=now_s) for each in dict.fromkeys(recipients))
    epoch = Epoch(wrapped_keys=entries, created_at=now_s)
    return Changed(Keyring(current_epoch=number, epochs={**epochs, str(number): epoch}), content_key)


def _content_keys(keyring: Keyring, recipient: KemKey, trusted: frozenset[str]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for name, epoch in keyring.epochs.items():
        entries = epoch.entries_for(recipient.public)
        # Of two entries for the same key, at least one is not what the adder intended.
        if len(entries) != 1 or entries[0].added_by not in trusted or not is_signed(entries[0], int(name)):
            continue
        try:
            found[int(name)] = unwrap(entries[0], recipient)
        except CannotOpen:
            continue
    return found


def _blob_context(epoch: int, context: str) -> bytes:
    return f"starfish-blob:{epoch}:{context}".encode()
