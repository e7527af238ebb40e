"""Certificates that were looked at before: who presents one every time does not cost a verification every time."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from strandline.faces.collections.config import ROOT_DEVICE
from strandline.faces.collections.permitting import Scope
from strandline.signing import caps
from strandline.signing.caps import BadCap

#: Certificates that are remembered. One is about three kilobytes, and eight at the most.
MAX_CERTIFICATES = 4096


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that is of the right form and signed by its issuer. Whether it is valid now is another question."""

    document: dict[str, Any]
    kind: str
    roles: frozenset[str]
    scope: Scope
    not_before: float
    expires: float

    def check_window(self, now_s: float) -> None:
        if now_s < self.not_before - caps.MAX_SKEW_S:
            raise BadCap("not-yet-valid")
        if now_s > self.expires + caps.MAX_SKEW_S:
            raise BadCap("expired")


class Certificates:
    """The last certificates that were presented. Only those that held are remembered."""

    def __init__(self) -> None:
        self._known: dict[bytes, Certificate] = {}

    def __len__(self) -> int:
        return len(self._known)

    def read(self, text: str, now_s: float) -> Certificate:
        """The certificate in the header; raises BadCap if it is none, or is not valid now."""
        digest = sha256(text.encode("latin-1")).digest()
        known = self._known.pop(digest, None)
        if known is None:
            known = _verified(text, now_s)
            if len(self._known) >= MAX_CERTIFICATES:
                del self._known[next(iter(self._known))]
        else:
            known.check_window(now_s)
        # Put last: what was not presented for the longest time is the first to go. One that has expired is not put
        # back at all.
        self._known[digest] = known
        return known


def _verified(text: str, now_s: float) -> Certificate:
    try:
        document = caps.decode(text)
        caps.check(document, now_s)
        caps.check_shared(document)
    except RecursionError:
        raise BadCap("malformed-encoding") from None
    scope = document["scope"]
    paths = scope.get("paths")
    return Certificate(
        document=document,
        kind=document["kind"],
        roles=frozenset(_roles(document)),
        scope=Scope(
            ops=frozenset(scope["ops"]),
            collections=frozenset(scope["collections"]),
            paths=None if paths is None else tuple(paths),
        ),
        not_before=document["nbf"],
        expires=document["exp"],
    )


def _roles(document: dict[str, Any]) -> set[str]:
    """The roles that a certificate gives to whoever presents it."""
    scope = document["scope"]
    roles = {f"cap:{op}:{collection}" for op in scope["ops"] for collection in scope["collections"]}
    if document["kind"] != "device":
        roles.update(f"delegated:{document['issUserId']}:{collection}" for collection in scope["collections"])
    elif document["iss"] == document["sub"]:
        roles.add(ROOT_DEVICE)
    return roles
