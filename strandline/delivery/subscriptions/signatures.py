"""Who a webhook is from: Ed25519 signatures over the time and the body, and the public key as a JSON Web Key."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SEED_BYTES = 32


class JsonWebKey(msgspec.Struct, frozen=True):
    kty: str
    crv: str
    x: str
    kid: str
    use: str
    alg: str


class Signer:
    """The same seed gives the same key, and the same ``kid``, for good."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        x = base64url(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        #: Named by its thumbprint (RFC 7638): the members it takes, in the order it takes them.
        thumbprint = sha256(msgspec.json.encode({"crv": "Ed25519", "kty": "OKP", "x": x})).digest()
        self.kid = "ds_" + base64url(thumbprint)
        self.public_key = JsonWebKey("OKP", "Ed25519", x, self.kid, "sig", "EdDSA")

    def sign(self, body: bytes, now_ms: int) -> str:
        """The header that goes with a body that is sent now."""
        seconds = now_ms // 1000
        signature = self._key.sign(b"%d.%b" % (seconds, body))
        return f"t={seconds},kid={self.kid},ed25519={base64url(signature)}"


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
