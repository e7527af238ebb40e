"""Sealed blobs: something secret for one recipient, by a sealer who has signed it, without a keyring.

The document is ``{"entry", "ct"}``, and ``"v": 1`` if it can be opened only with the context it was sealed with.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from secrets import token_bytes
from typing import Any

import msgspec

from strandline.signing.keys import KemKey, Signer
from strandline.signing.wrapped_keys import (
    CONTENT_KEY_BYTES,
    CannotOpen,
    Entry,
    decrypt,
    encrypt,
    is_signed,
    unwrap,
    wrap,
)

#: There are no epochs here; entries are signed as if of this one.
_EPOCH = 0


class _Sealed(msgspec.Struct, frozen=True):
    entry: Entry
    ct: str
    v: int | None = None


def seal(plaintext: bytes, recipient: str, sealer: Signer, *, now_s: int, context: str = "") -> dict[str, Any]:
    """Raises BadKey."""
    content_key = token_bytes(CONTENT_KEY_BYTES)
    entry = wrap(content_key, recipient, sealer, epoch=_EPOCH, now_s=now_s)
    text = encrypt(content_key, plaintext, context.encode() or None)
    document: dict[str, Any] = {"entry": msgspec.to_builtins(entry), "ct": b64encode(text).decode()}
    return {**document, "v": 1} if context else document


def unseal(document: Any, recipient: KemKey, *, sealer: str | None = None, context: str = "") -> bytes:
    """What was sealed, by ``sealer`` if that is given and by anybody if not. Raises CannotOpen."""
    try:
        sealed = msgspec.convert(document, _Sealed)
    except msgspec.ValidationError as error:
        raise CannotOpen(f"no sealed blob: {error}") from None
    if sealed.v == 1 and not context:
        raise CannotOpen("the blob can only be opened with the context it was sealed with")
    if not is_signed(sealed.entry, _EPOCH):
        raise CannotOpen("the signature of the sealer does not hold")
    if sealer is not None and sealed.entry.added_by != sealer:
        raise CannotOpen("the blob was sealed by somebody else")
    try:
        text = b64decode(sealed.ct, validate=True)
    except ValueError as error:
        raise CannotOpen("no sealed blob: ct is no base64") from error
    return decrypt(unwrap(sealed.entry, recipient), text, context.encode() or None)
