"""Signed requests, for tests of who asks."""

from __future__ import annotations

from typing import Any

from strandline.service.http import Call, Head
from strandline.signing import certificates, signed_requests
from strandline.signing.keys import KemKey, Signer

NOW_S = 1_714_000_000
NOW = NOW_S * 1000
HOST = "127.0.0.1:4000"

ALICE, BOB, CAROL = Signer("01" * 32), Signer("02" * 32), Signer("03" * 32)
KEM = KemKey("65" * 32).public

READING = {"ops": ["read"], "collections": ["events"], "paths": ["events/**"]}
WRITING = {"ops": ["write"], "collections": ["events"], "paths": ["events/**", "!events/_members", "!events/_keyring"]}


def device(issuer: Signer = ALICE, subject: Signer = ALICE, **scope: Any) -> dict[str, Any]:
    """A certificate for a device: without a scope for everything."""
    return certificates.mint_device(issuer, subject.public, KEM, scope or certificates.everything(), now_s=NOW_S)


def member(issuer: Signer = ALICE, subject: Signer = BOB, **scope: Any) -> dict[str, Any]:
    return certificates.mint_member(issuer, subject.public, KEM, "events", scope or WRITING, now_s=NOW_S)


def audience(issuer: Signer = ALICE, aud: list[str] | None = None, **scope: Any) -> dict[str, Any]:
    return certificates.mint_audience(issuer, "events", scope or WRITING, aud, now_s=NOW_S)


def changed(cert: dict[str, Any], issuer: Signer = ALICE, **members: Any) -> dict[str, Any]:
    """The certificate with other members, signed again, whether or not it makes sense."""
    cert = {**cert, **members}
    return {**cert, "sig": issuer.sign(certificates.signed_bytes(cert))}


def plain(method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None, peer: str = "") -> Call:
    """A request as the server has it, with these headers and no others."""
    path, _, query = target.partition("?")
    raw = {name.lower().encode(): value.encode("latin-1") for name, value in (headers or {}).items()}
    return Call(Head(method, path, query, raw), body, 0.0, peer)


def headers_of(
    cert: dict[str, Any],
    signer: Signer,
    method: str,
    target: str,
    body: bytes = b"",
    ts: int = NOW,
    nonce: str | None = None,
    host: str = HOST,
) -> dict[str, str]:
    """The headers that a client sends."""
    headers = {
        "Host": host,
        "Authorization": certificates.SCHEME + certificates.encode(cert),
        **signed_requests.sign(signer, method, target, host, body, ts, nonce),
    }
    if cert["kind"] == "audience":
        headers[signed_requests.PRESENTER_HEADER] = signer.public
    if method == "POST":
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return headers


def signed(
    cert: dict[str, Any],
    signer: Signer,
    method: str = "GET",
    target: str = "/pull/events/d1?last=1",
    body: bytes = b"",
    ts: int = NOW,
    nonce: str | None = None,
    **others: str | None,
) -> Call:
    """A signed request; ``others`` are headers that are not those that were signed, or that are not sent."""
    headers = headers_of(cert, signer, method, target, body, ts, nonce)
    for name, value in others.items():
        headers.pop(name.replace("_", "-"), None)
        if value is not None:
            headers[name.replace("_", "-")] = value
    return plain(method, target, body, headers)
