"""Webhook signatures, and the tokens that prove who holds a wake.

A webhook is signed with Ed25519 over the time and the body; the public key is published as a JSON Web Key.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from hashlib import sha256

import msgspec

from strandline.delivery.subscriptions.errors import BadToken, TokenExpired

SEED_BYTES = 32


class JsonWebKey(msgspec.Struct, frozen=True):
    kty: str
    crv: str
    x: str
    kid: str
    use: str
    alg: str


class WebhookSigner:
    """Signs webhooks. The same seed always gives the same key and the same ``kid``."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        x = base64url(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        #: The key id is the thumbprint of RFC 7638: these members in this order.
        thumbprint = sha256(msgspec.json.encode({"crv": "Ed25519", "kty": "OKP", "x": x})).digest()
        self.kid = "ds_" + base64url(thumbprint)
        self.public_key = JsonWebKey("OKP", "Ed25519", x, self.kid, "sig", "EdDSA")

    def sign(self, body: bytes, now_ms: int) -> str:
        """The signature header of a body that is sent now."""
        seconds = now_ms // 1000
        signature = self._key.sign(b"%d.%b" % (seconds, body))
        return f"t={seconds},kid={self.kid},ed25519={base64url(signature)}"


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


#: Longer than any worker holds a wake, including heartbeats. A lease ends by its own deadline, not by this one.
TOKEN_MS = 24 * 3_600_000


class _Claim(msgspec.Struct, frozen=True, array_like=True):
    id: str
    generation: int
    wake_id: str
    expires_at: int


_decoder = msgspec.json.Decoder(_Claim)


class Tokens:
    """Issues and checks tokens. The key is derived from ``seed``, the server's secret."""

    def __init__(self, seed: bytes) -> None:
        self._key = hmac.digest(seed, b"strandline subscription tokens", "sha256")

    def issue(self, id: str, generation: int, wake_id: str, now: int) -> str:
        claim = base64url(msgspec.json.encode(_Claim(id, generation, wake_id, now + TOKEN_MS)))
        return f"{claim}.{self._code(claim)}"

    def check(self, token: str, id: str, now: int) -> tuple[int, str]:
        """The generation and the wake id of a token. Raises if the token was not issued for this subscription or has
        expired."""
        claim, _, code = token.partition(".")
        if not token.isascii() or not hmac.compare_digest(code, self._code(claim)):
            raise BadToken("the token is not valid")
        try:
            decoded = _decoder.decode(urlsafe_b64decode(claim + "=" * (-len(claim) % 4)))
        except (BadBase64, msgspec.MsgspecError):
            raise BadToken("the token is not valid") from None
        if decoded.id != id:
            raise BadToken("the token is not valid")
        if now > decoded.expires_at:
            raise TokenExpired("the token has expired")
        return decoded.generation, decoded.wake_id

    def _code(self, claim: str) -> str:
        return base64url(hmac.digest(self._key, claim.encode(), "sha256"))
