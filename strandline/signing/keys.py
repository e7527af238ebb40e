"""Keys: signing keys (Ed25519), and keys that content keys are wrapped for (X25519).

On the wire, a key is 64 hexadecimal digits, and a signature is base64.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Self

from strandline.late_import import LateModule

try:
    from nacl.bindings import crypto_sign, crypto_sign_BYTES, crypto_sign_open, crypto_sign_seed_keypair
    from nacl.exceptions import BadSignatureError
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "signatures need the Python packages pynacl and cryptography: pip install 'strandline[collections]'",
        name=error.name,
    ) from None

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import x25519
else:
    x25519 = LateModule("cryptography.hazmat.primitives.asymmetric.x25519")

_KEY = re.compile("[0-9a-fA-F]{64}")
_KEY_BYTES = 32
_USER_ID_DIGITS = 32


class BadKey(ValueError):
    """A text that is not a key: not 64 hexadecimal digits, or an unusable point."""


class Signer:
    """A signing key. Its seed is the secret."""

    __slots__ = ("_secret", "public", "seed")

    def __init__(self, seed: str) -> None:
        """Raises BadKey."""
        public, self._secret = crypto_sign_seed_keypair(key_bytes(seed))
        self.seed = seed.lower()
        self.public = public.hex()

    @classmethod
    def generate(cls) -> Self:
        return cls(token_hex(_KEY_BYTES))

    @property
    def user_id(self) -> str:
        return user_id(self.public)

    def sign(self, message: bytes) -> str:
        return b64encode(crypto_sign(message, self._secret)[:crypto_sign_BYTES]).decode()

    def __repr__(self) -> str:
        return f"Signer(public={self.public!r})"


class KemKey:
    """A key that content keys are wrapped for."""

    __slots__ = ("_key", "private", "public")

    def __init__(self, private: str) -> None:
        """Raises BadKey."""
        self._key = x25519.X25519PrivateKey.from_private_bytes(key_bytes(private))
        self.private = private.lower()
        self.public = self._key.public_key().public_bytes_raw().hex()

    @classmethod
    def generate(cls) -> Self:
        return cls(x25519.X25519PrivateKey.generate().private_bytes_raw().hex())

    def shared_with(self, public: str) -> bytes:
        """Return the secret that this key shares with the owner of the other one. Raises BadKey."""
        try:
            return self._key.exchange(x25519.X25519PublicKey.from_public_bytes(key_bytes(public)))
        except BadKey:
            raise
        except ValueError as error:
            # A point of low order, with which everyone would know the secret.
            raise BadKey(f"{public} cannot be used to share a secret") from error

    def __repr__(self) -> str:
        return f"KemKey(public={self.public!r})"


def verify(public: str, signature: str, message: bytes) -> bool:
    """Return whether the signature is by this key over this message. Never raises, whatever the arguments."""
    try:
        proof = b64decode(signature, validate=True)
        if len(proof) != crypto_sign_BYTES:
            return False
        crypto_sign_open(proof + message, key_bytes(public))
    except (BadSignatureError, ValueError):
        return False
    return True


def user_id(public: str) -> str:
    """Return the user id of the owner of a public key. Raises BadKey."""
    return sha256(key_bytes(public)).hexdigest()[:_USER_ID_DIGITS]


def is_key(text: object) -> bool:
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


def key_bytes(text: str) -> bytes:
    """Decode a key. Raises BadKey, which does not repeat the text, because it may be a secret."""
    if not is_key(text):
        raise BadKey("invalid key: expected 64 hexadecimal digits")
    return bytes.fromhex(text)
