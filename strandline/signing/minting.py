"""Making cap certificates."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from secrets import token_bytes
from typing import Any

from strandline.signing.caps import BadCap, Cert, check_shape, check_shared, signed_bytes
from strandline.signing.keys import Signer, user_id

#: Thirty days: long enough not to bother people, short enough that a lost device is not a worry for ever.
DEFAULT_TTL_S = 30 * 24 * 3600

Scope = Mapping[str, Any]


def everything() -> dict[str, list[str]]:
    """All operations on everything that is the issuer's; for devices alone."""
    return {"ops": ["read", "list", "write"], "paths": ["**"], "collections": ["*"]}


def read_only(collection: str) -> dict[str, list[str]]:
    """Reading what is below ``collection/``. A document whose path is the name itself needs the path ``collection``."""
    return {
        "ops": ["read", "list"],
        "paths": [f"{collection}/**", f"!{collection}/_members"],
        "collections": [collection],
    }


def writer(collection: str) -> dict[str, list[str]]:
    """Reading and writing what is below ``collection/``, except who may read it."""
    return {
        "ops": ["read", "list", "write"],
        "paths": [f"{collection}/**", f"!{collection}/_keyring", f"!{collection}/_members"],
        "collections": [collection],
    }


def admin(collection: str) -> dict[str, list[str]]:
    """Everything below ``collection/``; for devices alone."""
    return {"ops": ["read", "list", "write"], "paths": [f"{collection}/**"], "collections": [collection]}


def mint_device(
    issuer: Signer,
    subject: str,
    subject_kem: str,
    scope: Scope,
    *,
    now_s: int,
    ttl_s: int = DEFAULT_TTL_S,
    nonce: bytes | None = None,
) -> Cert:
    """A certificate with which the owner of the key ``subject`` acts as the issuer. Raises BadCap."""
    cert = _begun(issuer, "device", scope, now_s, ttl_s, nonce)
    cert |= {"sub": subject, "subKem": subject_kem}
    check_shape(cert)
    return _signed(issuer, cert)


def mint_member(
    issuer: Signer,
    subject: str,
    subject_kem: str,
    collection: str,
    scope: Scope,
    *,
    now_s: int,
    ttl_s: int = DEFAULT_TTL_S,
    nonce: bytes | None = None,
) -> Cert:
    """A certificate with which the owner of ``subject`` may use one collection of the issuer. Raises BadCap."""
    cert = _begun(issuer, "member", {**scope, "collections": [collection]}, now_s, ttl_s, nonce)
    cert |= {"sub": subject, "subKem": subject_kem, "subUserId": user_id(subject)}
    check_shared(cert)
    return _signed(issuer, cert)


def mint_audience(
    issuer: Signer,
    collection: str,
    scope: Scope,
    audience: Sequence[str] | None = None,
    *,
    now_s: int,
    ttl_s: int = DEFAULT_TTL_S,
    nonce: bytes | None = None,
) -> Cert:
    """A certificate for everybody, or for the owners of the keys in ``audience``, on one collection. Raises BadCap."""
    cert = _begun(issuer, "audience", {**scope, "collections": [collection]}, now_s, ttl_s, nonce)
    if audience is not None:
        cert["aud"] = list(audience)
    check_shared(cert)
    return _signed(issuer, cert)


def _begun(issuer: Signer, kind: str, scope: Scope, now_s: int, ttl_s: int, nonce: bytes | None) -> Cert:
    if ttl_s <= 0:
        raise BadCap("inverted-window")
    return {
        "v": 1,
        "kind": kind,
        "iss": issuer.public,
        "issUserId": issuer.user_id,
        "scope": dict(scope),
        "nbf": now_s,
        "exp": now_s + ttl_s,
        "nonce": b64encode(token_bytes(16) if nonce is None else nonce).decode(),
    }


def _signed(issuer: Signer, cert: Cert) -> Cert:
    return {**cert, "sig": issuer.sign(signed_bytes(cert))}
