"""Signed requests: the caller signs the method, the target, the host, the body, a time and a nonce."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from secrets import token_bytes
from urllib.parse import urlsplit

from strandline.signing.canonical_json import canonical
from strandline.signing.keys import Signer, verify

DOMAIN = b"starfish-req-v1\n"
TIME_HEADER = "X-Starfish-Ts"
NONCE_HEADER = "X-Starfish-Nonce"
SIGNATURE_HEADER = "X-Starfish-Sig"
#: The key that signed, if the cap does not name it.
PRESENTER_HEADER = "X-Starfish-Pub"

_NONCE_BYTES = 16
_DEFAULT_PORTS = {"http": 80, "https": 443}


def signed_bytes(method: str, target: str, host: str, body: bytes, ts: int, nonce: str) -> bytes:
    """Return the bytes to sign. The target is the path and the query as they are sent, undecoded."""
    return DOMAIN + canonical(
        {"b": sha256(body).hexdigest(), "h": host, "m": method.upper(), "nonce": nonce, "p": target, "ts": ts}
    )


def sign(
    signer: Signer, method: str, target: str, host: str, body: bytes, ts: int, nonce: str | None = None
) -> dict[str, str]:
    """Return the headers of a request at a time in milliseconds. A nonce is used once; by default a new one is
    created."""
    nonce = fresh_nonce() if nonce is None else nonce
    signature = signer.sign(signed_bytes(method, target, host, body, ts, nonce))
    return {TIME_HEADER: str(ts), NONCE_HEADER: nonce, SIGNATURE_HEADER: signature}


def holds(public: str, signature: str, method: str, target: str, host: str, body: bytes, ts: int, nonce: str) -> bool:
    """Return whether the owner of the key has signed this request. Never raises, whatever the arguments."""
    return verify(public, signature, signed_bytes(method, target, host, body, ts, nonce))


def host_of(url: str) -> str:
    """Return the host for signatures of requests to this address: in lower case, without a default port."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if ":" in host:
        host = f"[{host}]"
    if parts.port is None or parts.port == _DEFAULT_PORTS.get(parts.scheme):
        return host
    return f"{host}:{parts.port}"


def fresh_nonce() -> str:
    return b64encode(token_bytes(_NONCE_BYTES)).decode()
