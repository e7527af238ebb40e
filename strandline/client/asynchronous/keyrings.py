"""Keyrings that devices share: a regular document with the content keys of a collection, wrapped for each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from time import time
from typing import Any

from strandline.client.asynchronous.regular_documents import AsyncRegularDocument
from strandline.client.errors import Conflict
from strandline.signing import keyring
from strandline.signing.keyring import BadKeyring, Encryptor, Keyring
from strandline.signing.keys import KemKey, Signer


class AsyncSharedKeyring:
    """The keyring of a collection, used by one of its recipients. ``keyring`` of collections creates one.

    Changes are safe if several devices make them at once: each is applied to the current keyring. A keyring with an
    older epoch than one that this object has seen is refused.
    """

    def __init__(
        self,
        document: AsyncRegularDocument[dict[str, Any]],
        signer: Signer,
        kem: KemKey,
        trusted_adders: Collection[str],
        clock: Callable[[], float] = time,
    ) -> None:
        self._document = document
        self._signer = signer
        self._kem = kem
        self._trusted = frozenset(trusted_adders)
        self._clock = clock
        self._epoch = 0

    async def create(self, recipients: Iterable[str] = ()) -> Encryptor:
        """Create the keyring for this device and the owners of the public keys ``recipients``. Raises Conflict if it
        exists."""
        created = keyring.create(self._signer, [self._kem.public, *recipients], now_s=self._now_s()).keyring
        try:
            await self._document.push(created.document())
        except Conflict as error:
            if error.code != "hash_mismatch":
                raise
            message = f"the keyring {self._document.key} exists; change its recipients with add or remove"
            raise Conflict(error.status, error.code, message, error.detail, headers=error.headers) from None
        return self._open(created)

    async def encryptor(self) -> Encryptor:
        """Pull the keyring, and return the Encryptor that encrypts and decrypts elements with it. Raises BadKeyring if
        there is no keyring, or no key for this device in its current epoch."""
        return self._open(self._parse((await self._document.pull()).data))

    async def recipients(self) -> list[str]:
        """The public keys of those who can read elements from now on."""
        return keyring.trusted_recipients(self._parse((await self._document.pull()).data), self._trusted)

    async def add(self, *recipients: str) -> Encryptor:
        """Let the owners of these public keys read the elements of the current epoch. The entries of current recipients
        do not change."""

        def added(current: Keyring) -> Keyring:
            content_key = self._open(current).content_key
            for recipient in dict.fromkeys(recipients):
                if not current.current().entries_for(recipient):
                    current = keyring.add_recipient(current, self._signer, content_key, recipient, now_s=self._now_s())
            return current

        return await self._change(added)

    async def remove(self, *recipients: str) -> Encryptor:
        """Start a new epoch without the owners of these public keys. They can still read elements of earlier epochs,
        and no later ones. Entries that no trusted adder has signed are left out, too."""

        def removed(current: Keyring) -> Keyring:
            self._open(current)
            retained = [key for key in keyring.trusted_recipients(current, self._trusted) if key not in recipients]
            if len(retained) == len(current.current().wrapped_keys):
                return current
            return keyring.rotate(current, self._signer, retained, now_s=self._now_s()).keyring

        return await self._change(removed)

    async def _change(self, change: Callable[[Keyring], Keyring]) -> Encryptor:
        changed: list[Keyring] = []

        def apply(data: dict[str, Any] | None) -> dict[str, Any] | None:
            current = self._parse(data)
            changed[:] = [change(current)]
            return None if changed[0] is current else changed[0].document()

        await self._document.update(apply)
        return self._open(changed[0])

    def _parse(self, data: dict[str, Any] | None) -> Keyring:
        if data is None:
            raise BadKeyring(f"there is no keyring at {self._document.key}; create it first")
        return Keyring.parse(data)

    def _open(self, current: Keyring) -> Encryptor:
        encryptor = Encryptor(current, self._kem, self._trusted, self._epoch)
        self._epoch = encryptor.current_epoch
        return encryptor

    def _now_s(self) -> int:
        return int(self._clock())
