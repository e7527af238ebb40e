"""Credentials for collections: a certificate and the key of its holder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from time import time
from typing import Any

from strandline.signing import certificates
from strandline.signing.certificates import DEFAULT_TTL_S, Scope, everything, mint_device, root_of
from strandline.signing.keys import KemKey, Signer


class Credential:
    """A certificate and the key of its holder.

    For a device or member certificate this is the key that the certificate names. An audience certificate, as in a
    share link, works with any key or with one of the keys it lists; use this client's own key.
    """

    def __init__(self, cap: dict[str, Any], signer: Signer) -> None:
        """Raises BadCap if the certificate is malformed, ValueError if the key does not match it."""
        certificates.check_shape(cap)
        if cap["kind"] == "audience":
            if signer.public not in cap.get("aud", (signer.public,)):
                raise ValueError(f"the certificate's audience does not include the key {signer.public}")
        elif cap["sub"].lower() != signer.public:
            raise ValueError(f"the certificate is for the key {cap['sub']}, not for {signer.public}")
        self.cap = cap
        self.signer = signer

    @classmethod
    def from_link(cls, fragment: str, signer: Signer) -> Credential:
        """A credential from the fragment of a share link. Raises BadCap."""
        return cls(certificates.decode_link(fragment.rpartition("#")[2]), signer)

    @property
    def names_presenter(self) -> bool:
        """Whether requests must name the key that signed them."""
        return bool(self.cap["kind"] == "audience")

    @property
    def author(self) -> str:
        """The key that signs elements, spelled as the server knows it."""
        return self.signer.public if self.names_presenter else str(self.cap["sub"])

    @cached_property
    def authorization(self) -> str:
        return certificates.SCHEME + certificates.encode(self.cap)

    def __repr__(self) -> str:
        return f"Credential({self.cap['kind']}, {self.signer.public})"


class OwnIdentity:
    """Issues credentials for its own identity, and renews them after half of their lifetime."""

    def __init__(
        self,
        signer: Signer,
        kem: KemKey,
        *,
        scope: Scope | None = None,
        ttl_s: int = DEFAULT_TTL_S,
        clock: Callable[[], float] = time,
    ) -> None:
        self.signer = signer
        self.kem = kem
        self._scope = everything() if scope is None else scope
        self._ttl_s = ttl_s
        self._clock = clock
        self._credential: Credential | None = None

    @classmethod
    def from_passphrase(cls, passphrase: str, *, clock: Callable[[], float] = time) -> OwnIdentity:
        """The identity of a passphrase; it is the same on every machine. Takes about a tenth of a second."""
        return cls(*root_of(passphrase), clock=clock)

    @property
    def user_id(self) -> str:
        return self.signer.user_id

    def certify(self, public: str, kem_public: str, *, scope: Scope | None = None) -> dict[str, Any]:
        """A certificate with which another device, the owner of these public keys, acts as this identity: on
        everything, or within ``scope``. The device uses it as ``Credential(certificate, signer)``."""
        scope = self._scope if scope is None else scope
        return mint_device(self.signer, public, kem_public, scope, now_s=int(self._clock()), ttl_s=self._ttl_s)

    def __call__(self) -> Credential:
        now_s = int(self._clock())
        if self._credential is None or now_s > self._credential.cap["nbf"] + self._ttl_s // 2:
            public = self.signer.public
            cap = mint_device(self.signer, public, self.kem.public, self._scope, now_s=now_s, ttl_s=self._ttl_s)
            self._credential = Credential(cap, self.signer)
        return self._credential


#: A credential, or a function that returns one for every request. The function must not block.
Credentials = Credential | Callable[[], Credential]


def current(credentials: Credentials | None) -> Credential | None:
    if credentials is None or isinstance(credentials, Credential):
        return credentials
    return credentials()
