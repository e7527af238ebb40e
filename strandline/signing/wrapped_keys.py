"""Content keys wrapped for one recipient: only who has the recipient's private key gets the content key out.

The wrapping key comes from a secret between a key made for the occasion and the recipient's. Who wrapped it has signed
the entry, so that a server cannot slip in a key of its own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from secrets import token_bytes

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from strandline.signing.canonical_json import canonical
from strandline.signing.keys import KemKey, Signer, verify

IV_BYTES = 12
CONTENT_KEY_BYTES = 32
_WRAP = b"starfish-wrap"


class CannotOpen(ValueError):
    """What was wrapped or encrypted is not for this key, not from whom it should be, or has been tampered with."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wrapped content key as it stands in documents."""

    sub_kem: str
    eph_kem: str
    ct: str
    added_by: str
    added_sig: str
    added_at: int


def wrap(
    content_key: bytes,
    recipient: str,
    adder: Signer,
    *,
    epoch: int,
    now_s: int,
    ephemeral: KemKey | None = None,
    iv: bytes | None = None,
) -> Entry:
    """The content key for the owner of the key ``recipient``. Raises BadKey.

    ``ephemeral`` and ``iv`` are made afresh; they are given only to repeat what has been computed elsewhere.
    """
    ephemeral = ephemeral or KemKey.generate()
    wrapped = encrypt(derived(ephemeral.shared_with(recipient), _WRAP, _WRAP), content_key, None, iv)
    unsigned = Entry(
        sub_kem=recipient,
        eph_kem=ephemeral.public,
        ct=b64encode(wrapped).decode(),
        added_by=adder.public,
        added_sig="",
        added_at=now_s,
    )
    return msgspec.structs.replace(unsigned, added_sig=adder.sign(signed_bytes(unsigned, epoch)))


def unwrap(entry: Entry, recipient: KemKey) -> bytes:
    """The content key. Whose entry it is has to be checked too. Raises CannotOpen."""
    try:
        key = derived(recipient.shared_with(entry.eph_kem), _WRAP, _WRAP)
        content_key = decrypt(key, b64decode(entry.ct, validate=True), None)
    except ValueError as error:
        raise CannotOpen("the content key cannot be unwrapped") from error
    if len(content_key) != CONTENT_KEY_BYTES:
        raise CannotOpen("the content key is of the wrong length")
    return content_key


def is_signed(entry: Entry, epoch: int) -> bool:
    return verify(entry.added_by, entry.added_sig, signed_bytes(entry, epoch))


def signed_bytes(entry: Entry, epoch: int) -> bytes:
    return canonical(
        {
            "addedAt": entry.added_at,
            "addedBy": entry.added_by,
            "ct": entry.ct,
            "ephKem": entry.eph_kem,
            "epoch": epoch,
            "subKem": entry.sub_kem,
        }
    )


def encrypt(key: bytes, plaintext: bytes, context: bytes | None, iv: bytes | None = None) -> bytes:
    """AES-256-GCM; the initialisation vector stands in front."""
    iv = iv or token_bytes(IV_BYTES)
    return iv + AESGCM(key).encrypt(iv, plaintext, context)


def decrypt(key: bytes, text: bytes, context: bytes | None) -> bytes:
    """Raises CannotOpen."""
    try:
        return AESGCM(key).decrypt(text[:IV_BYTES], text[IV_BYTES:], context)
    except (InvalidTag, ValueError) as error:
        raise CannotOpen("decryption failed: tampered with, or of another key or context") from error


def derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """A key of 32 bytes out of a secret (HKDF with SHA-256)."""
    return HKDF(SHA256(), 32, salt, info).derive(secret)
