"""Root identities: the keys of a person, out of a passphrase alone."""

from __future__ import annotations

from typing import NamedTuple
from unicodedata import normalize

from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from strandline.signing.certificates import DEFAULT_TTL_S, Cert, everything, mint_device
from strandline.signing.keys import KemKey, Signer
from strandline.signing.wrapped_keys import derived

# What others use for the same passphrase: with any other number the keys would be others.
_SALT = b"starfish-v3-root"
_MEMORY_KIB = 47104
_ROUNDS = 3


class Root(NamedTuple):
    signer: Signer
    kem: KemKey

    @property
    def user_id(self) -> str:
        return self.signer.user_id

    def cap(self, *, now_s: int, ttl_s: int = DEFAULT_TTL_S) -> Cert:
        """The certificate that an identity gives to itself, for everything."""
        return mint_device(self.signer, self.signer.public, self.kem.public, everything(), now_s=now_s, ttl_s=ttl_s)


def root_of(passphrase: str) -> Root:
    """The identity of a passphrase: takes about a tenth of a second and 46 MiB, on purpose. Raises ValueError."""
    if not passphrase.strip():
        raise ValueError("a passphrase must not be empty")
    # The same letters can be written with different code points, depending on the keyboard.
    secret = normalize("NFC", passphrase).encode()
    master = Argon2id(salt=_SALT, length=32, iterations=_ROUNDS, lanes=1, memory_cost=_MEMORY_KIB).derive(secret)
    seed = derived(master, b"starfish-root-sign", b"ed25519")
    return Root(Signer(seed.hex()), KemKey(derived(master, b"starfish-root-kem", b"x25519").hex()))
