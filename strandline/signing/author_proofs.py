"""Proofs of authorship: an Ed25519 signature over a record's data and the key of its document.

A proof is stored in the meta data of the record, as the members ``authorPubkey`` (64 hexadecimal digits) and
``authorSignature`` (base64). The signature covers a line that states its purpose, the domain, followed by the canonical
form of ``{"d": data, "k": document key}``. The key of a document is the name of its log. The time of a record is not
signed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.signing.canonical_json import NotJson, canonical, parse, parse_signed
from strandline.signing.keys import Signer, verify

#: The domain of elements of append-only documents.
DOMAIN = b"starfish-append-author-v1\n"
#: The domain of regular documents, which are signed as a whole.
DOCUMENT_DOMAIN = b"starfish-doc-author-v1\n"


class Proof(NamedTuple):
    public_key: str
    signature: str


def proof_of(meta: bytes | None) -> Proof | None:
    """Return the proof in a record's meta data; None if it has none. Does not check whether the proof holds."""
    if meta is None or b"authorSignature" not in meta:
        return None
    try:
        found = parse(meta)
    except NotJson:
        return None
    if not isinstance(found, dict):
        return None
    public_key, signature = found.get("authorPubkey"), found.get("authorSignature")
    if not isinstance(public_key, str) or not isinstance(signature, str):
        return None
    return Proof(public_key, signature)


def meta_of(proof: Proof) -> bytes:
    """Return the meta data of a record with this proof, as ``proof_of`` reads it."""
    return canonical({"authorPubkey": proof.public_key, "authorSignature": proof.signature})


def signed_bytes(document_key: str, data: bytes) -> bytes:
    """Return the bytes that the author of a record signs. Raises NotJson."""
    return _message(document_key, parse(data))


def sign(signer: Signer, document_key: str, document: Any, domain: bytes = DOMAIN) -> Proof:
    """Return the proof that the signer wrote this parsed data into this document."""
    return Proof(signer.public, signer.sign(_message(document_key, document, domain)))


def holds(proof: Proof, document_key: str, data: bytes, domain: bytes = DOMAIN) -> bool:
    """Return whether the proof holds for this data in this document. Never raises, whatever the proof contains."""
    try:
        return holds_for(proof, document_key, parse_signed(data), domain)
    except NotJson:
        return False


def holds_for(proof: Proof, document_key: str, document: Any, domain: bytes = DOMAIN) -> bool:
    """Like ``holds``, for data that has been parsed."""
    try:
        message = _message(document_key, document, domain)
    except RecursionError:
        return False
    return verify(proof.public_key, proof.signature, message)


def _message(document_key: str, document: Any, domain: bytes = DOMAIN) -> bytes:
    return domain + canonical({"d": document, "k": document_key})
