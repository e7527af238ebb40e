"""Proofs of who wrote a record: an Ed25519 signature over its data and the key of the document it is in.

A proof is kept in the meta of the record, as the members ``authorPubkey`` (64 hexadecimal digits) and
``authorSignature`` (base64). What is signed is the canonical form of ``{"d": data, "k": document key}`` behind a line
that says what it is for. The key of a document is the name of its log.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from strandline.schema.canonical import NotJson, canonical, parse

DOMAIN = b"starfish-append-author-v1\n"
_PUBLIC_KEY = re.compile("[0-9a-fA-F]{64}")


class Proof(NamedTuple):
    public_key: str
    signature: str


class _Meta(msgspec.Struct):
    author_public_key: Any = msgspec.field(default=None, name="authorPubkey")
    author_signature: Any = msgspec.field(default=None, name="authorSignature")


_decode = msgspec.json.Decoder(_Meta).decode


def proof_of(meta: bytes | None) -> Proof | None:
    """The proof that a meta has; None if it has none. Whether it holds is another question."""
    if meta is None or b"authorSignature" not in meta:
        return None
    try:
        found = _decode(meta)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found.author_public_key, str) or not isinstance(found.author_signature, str):
        return None
    return Proof(found.author_public_key, found.author_signature)


def signed_bytes(document_key: str, data: bytes) -> bytes:
    """What the author of a record has signed. Raises NotJson."""
    return DOMAIN + canonical({"d": parse(data), "k": document_key})


def holds(proof: Proof, document_key: str, data: bytes) -> bool:
    """Whether the proof is one for this data in this document. Nothing that is in it makes this raise."""
    try:
        key = _public_key(proof.public_key)
        signature = b64decode(proof.signature, validate=True)
        key.verify(signature, signed_bytes(document_key, data))
    except (InvalidSignature, NotBase64, NotJson, ValueError, RecursionError):
        return False
    return True


@lru_cache(maxsize=4096)
def _public_key(text: str) -> Ed25519PublicKey:
    if not _PUBLIC_KEY.fullmatch(text):
        raise ValueError(f"{text!r} is no public key")
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
