from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starfish_protocol.request_signing import RequestSignature, sign_request, verify_request_signature

from strandline.signing.keys import Signer
from strandline.signing.signed_requests import (
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    holds,
    host_of,
    sign,
    signed_bytes,
)

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
A, B = (Signer(VECTORS["keys"][name]["priv"]) for name in "AB")
GET = ("GET", "/pull/events?checkpoint=1714000000000&last=10", "api.example.com", b"")
POST = ("POST", "/push/events", "127.0.0.1:8787", VECTORS["req"]["post"]["body"].encode())


@pytest.mark.parametrize(("name", "signer", "request_"), [("get", A, GET), ("post", B, POST)], ids=["get", "post"])
def test_requests_are_signed_as_elsewhere(name: str, signer: Signer, request_: tuple[str, str, str, bytes]) -> None:
    vector = VECTORS["req"][name]
    ts, nonce = vector["ts"], vector["nonce"]
    assert signed_bytes(*request_, ts, nonce).decode() == vector["canon"]
    headers = sign(signer, *request_, ts, nonce)
    assert headers == {TIME_HEADER: str(ts), NONCE_HEADER: nonce, SIGNATURE_HEADER: vector["sig"]}
    assert holds(signer.public, vector["sig"], *request_, ts, nonce)


requests = st.tuples(st.sampled_from(["GET", "POST"]), st.text(), st.text(), st.binary())


@given(requests, requests, st.integers(0, 2**48), st.binary(min_size=16, max_size=16))
def test_published_signatures_hold_here_and_ours_there(
    request: tuple[str, str, str, bytes], other: tuple[str, str, str, bytes], ts: int, nonce: bytes
) -> None:
    method, target, host, body = request
    text = b64encode(nonce).decode()
    signature = sign(A, method, target, host, body, ts, text)[SIGNATURE_HEADER]
    theirs = sign_request(method, target, body, A.seed, host=host, ts=ts, nonce=nonce)
    assert theirs.sig == signature
    assert verify_request_signature(
        method, target, body, RequestSignature(sig=signature, ts=ts, nonce=text), A.public, host=host
    )
    assert holds(A.public, signature, *request, ts, text)
    assert not holds(A.public, signature, *request, ts + 1, text)
    assert not holds(A.public, signature, *request, ts, text + "=")
    assert not holds(B.public, signature, *request, ts, text)
    assert holds(A.public, signature, *other, ts, text) is (other == request)


def test_a_fresh_nonce_is_made_each_time() -> None:
    nonces = {sign(A, *GET, 1)[NONCE_HEADER] for _ in range(10)}
    assert len(nonces) == 10


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:8787", "127.0.0.1:8787"),
        ("http://Example.COM/v1", "example.com"),
        ("http://example.com:80", "example.com"),
        ("https://example.com:443/", "example.com"),
        ("https://example.com:80", "example.com:80"),
        ("http://[::1]:8787", "[::1]:8787"),
    ],
)
def test_the_host_is_as_browsers_have_it(url: str, host: str) -> None:
    assert host_of(url) == host
