"""Tokens: what a worker or a webhook shows to prove that a wake was given to it.

A token is a claim and its authentication code, so none has to be kept, and one of a wake that has ended can be told
from one that was never given out.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from binascii import Error as BadBase64

import msgspec

from strandline.delivery.subscriptions.errors import BadToken, TokenExpired
from strandline.delivery.subscriptions.signatures import base64url

#: Longer than any worker holds a wake, heartbeats included. What ends a lease is its own time, not this one.
TOKEN_MS = 24 * 3_600_000


class _Claim(msgspec.Struct, frozen=True, array_like=True):
    id: str
    generation: int
    wake_id: str
    expires_at: int


_decoder = msgspec.json.Decoder(_Claim)


class Tokens:
    """``seed`` is the server's secret; what is used here is derived from it."""

    def __init__(self, seed: bytes) -> None:
        self._key = hmac.digest(seed, b"strandline subscription tokens", "sha256")

    def issue(self, id: str, generation: int, wake_id: str, now: int) -> str:
        claim = base64url(msgspec.json.encode(_Claim(id, generation, wake_id, now + TOKEN_MS)))
        return f"{claim}.{self._code(claim)}"

    def check(self, token: str, id: str, now: int) -> tuple[int, str]:
        """The generation and the wake that it was given out for; raises if it was not, or not for this subscription."""
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
