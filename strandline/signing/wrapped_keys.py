"""Content keys wrapped for one recipient, and sealed blobs: a secret for one recipient, without a keyring.

Only the recipient's private key unwraps a content key. The wrapping key is derived from an ephemeral key and the
recipient's key. The wrapper signs the entry, so that a server cannot insert a key of its own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import msgspec

from strandline.late_import import LateModule
from strandline.signing.canonical_json import canonical
from strandline.signing.keys import KemKey, Signer, verify

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers import aead
    from cryptography.hazmat.primitives.kdf import hkdf
else:
    exceptions = LateModule("cryptography.exceptions")
    hashes = LateModule("cryptography.hazmat.primitives.hashes")
    aead = LateModule("cryptography.hazmat.primitives.ciphers.aead")
    hkdf = LateModule("cryptography.hazmat.primitives.kdf.hkdf")

IV_BYTES = 12
CONTENT_KEY_BYTES = 32
_WRAP = b"starfish-wrap"


class CannotOpen(ValueError):
    """The wrapped or encrypted data is not for this key, not from the expected sender, or was tampered with."""


class WrappedKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wrapped content key as it is stored in documents."""

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
) -> WrappedKey:
    """Wrap the content key for the owner of the key ``recipient``. Raises BadKey.

    ``ephemeral`` and ``iv`` are random by default; pass them only to reproduce a known result.
    """
    ephemeral = ephemeral or KemKey.generate()
    wrapped = encrypt(derived(ephemeral.shared_with(recipient), _WRAP, _WRAP), content_key, None, iv)
    unsigned = WrappedKey(
        sub_kem=recipient,
        eph_kem=ephemeral.public,
        ct=b64encode(wrapped).decode(),
        added_by=adder.public,
        added_sig="",
        added_at=now_s,
    )
    return msgspec.structs.replace(unsigned, added_sig=adder.sign(signed_bytes(unsigned, epoch)))


def unwrap(entry: WrappedKey, recipient: KemKey) -> bytes:
    """Return the content key. The caller must also check who signed the entry. Raises CannotOpen."""
    try:
        key = derived(recipient.shared_with(entry.eph_kem), _WRAP, _WRAP)
        content_key = decrypt(key, b64decode(entry.ct, validate=True), None)
    except ValueError as error:
        raise CannotOpen("the content key cannot be unwrapped") from error
    if len(content_key) != CONTENT_KEY_BYTES:
        raise CannotOpen("the content key has the wrong length")
    return content_key


def is_signed(entry: WrappedKey, epoch: int) -> bool:
    return verify(entry.added_by, entry.added_sig, signed_bytes(entry, epoch))


def signed_bytes(entry: WrappedKey, epoch: int) -> bytes:
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
    """Encrypt with AES-256-GCM. The result starts with the initialisation vector."""
    iv = iv or token_bytes(IV_BYTES)
    return iv + aead.AESGCM(key).encrypt(iv, plaintext, context)


def decrypt(key: bytes, text: bytes, context: bytes | None) -> bytes:
    """Decrypt. Raises CannotOpen."""
    try:
        return aead.AESGCM(key).decrypt(text[:IV_BYTES], text[IV_BYTES:], context)
    except (exceptions.InvalidTag, ValueError) as error:
        raise CannotOpen("decryption failed: tampered data, or another key or context") from error


def derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Derive a key of 32 bytes from a secret (HKDF with SHA-256)."""
    return hkdf.HKDF(hashes.SHA256(), 32, salt, info).derive(secret)


#: Blobs have no epochs; their entries are signed with this one.
_EPOCH = 0


class _Sealed(msgspec.Struct, frozen=True):
    entry: WrappedKey
    ct: str
    v: int | None = None


def seal(plaintext: bytes, recipient: str, sealer: Signer, *, now_s: int, context: str = "") -> dict[str, Any]:
    """Seal data for one recipient. Raises BadKey."""
    content_key = token_bytes(CONTENT_KEY_BYTES)
    entry = wrap(content_key, recipient, sealer, epoch=_EPOCH, now_s=now_s)
    text = encrypt(content_key, plaintext, context.encode() or None)
    document: dict[str, Any] = {"entry": msgspec.to_builtins(entry), "ct": b64encode(text).decode()}
    return {**document, "v": 1} if context else document


def unseal(document: Any, recipient: KemKey, *, sealer: str | None = None, context: str = "") -> bytes:
    """Return the sealed data. If ``sealer`` is given, it must have sealed the blob. Raises CannotOpen."""
    try:
        sealed = msgspec.convert(document, _Sealed)
    except msgspec.ValidationError as error:
        raise CannotOpen(f"invalid sealed blob: {error}") from None
    if sealed.v == 1 and not context:
        raise CannotOpen("the blob can only be opened with the context it was sealed with")
    if not is_signed(sealed.entry, _EPOCH):
        raise CannotOpen("the signature of the sealer is invalid")
    if sealer is not None and sealed.entry.added_by != sealer:
        raise CannotOpen("the blob was not sealed by the expected sealer")
    try:
        text = b64decode(sealed.ct, validate=True)
    except ValueError as error:
        raise CannotOpen("invalid sealed blob: ct is not base64") from error
    return decrypt(unwrap(sealed.entry, recipient), text, context.encode() or None)
