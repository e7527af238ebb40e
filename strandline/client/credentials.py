"""Credentials for collections: a certificate, and the key that it is used with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from time import time
from typing import Any

from strandline.signing import certificates
from strandline.signing.certificates import DEFAULT_TTL_S, Scope, everything, mint_device, root_of
from strandline.signing.keys import KemKey, Signer


class Credential:
    """A certificate with the key of its holder.

    For a device or a member that is the key that the certificate is about. One for an audience, such as comes in a
    link, is used with any key, or any of those that it names: with this client's own.
    """

    def __init__(self, cap: dict[str, Any], signer: Signer) -> None:
        """Raises BadCap if the certificate is not of the right form, ValueError if the key is none for it."""
        certificates.check_shape(cap)
        if cap["kind"] == "audience":
            if signer.public not in cap.get("aud", (signer.public,)):
                raise ValueError("the certificate is for others than the owner of this key")
        elif cap["sub"].lower() != signer.public:
            raise ValueError("the certificate is about another key than this one")
        self.cap = cap
        self.signer = signer

    @classmethod
    def from_link(cls, fragment: str, signer: Signer) -> Credential:
        """From the fragment of a link to share a collection. Raises BadCap."""
        return cls(certificates.decode_link(fragment.rpartition("#")[2]), signer)

    @property
    def names_presenter(self) -> bool:
        """Whether a request has to say whose signature it is."""
        return bool(self.cap["kind"] == "audience")

    @property
    def author(self) -> str:
        """The key that elements are signed with, spelt as the server knows it."""
        return self.signer.public if self.names_presenter else str(self.cap["sub"])

    @cached_property
    def authorization(self) -> str:
        return certificates.SCHEME + certificates.encode(self.cap)

    def __repr__(self) -> str:
        return f"Credential({self.cap['kind']}, {self.signer.public})"


class OwnIdentity:
    """Credentials that an identity gives to itself, renewed when half of their time is over."""

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
        """The identity of a passphrase: the same on every machine. Takes about a tenth of a second."""
        return cls(*root_of(passphrase), clock=clock)

    @property
    def user_id(self) -> str:
        return self.signer.user_id

    def __call__(self) -> Credential:
        now_s = int(self._clock())
        if self._credential is None or now_s > self._credential.cap["nbf"] + self._ttl_s // 2:
            public = self.signer.public
            cap = mint_device(self.signer, public, self.kem.public, self._scope, now_s=now_s, ttl_s=self._ttl_s)
            self._credential = Credential(cap, self.signer)
        return self._credential


#: A credential, or what gives one for every request; that must not wait.
Credentials = Credential | Callable[[], Credential]


def current(credentials: Credentials | None) -> Credential | None:
    if credentials is None or isinstance(credentials, Credential):
        return credentials
    return credentials()
