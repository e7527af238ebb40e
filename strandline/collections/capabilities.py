"""Capabilities: verifies the certificate that a request presents, and the signature that proves its sender.

A certificate ("cap") says which key acts for which user, on which collections and paths, and until when. Every request
carries it and is signed by the key that it names.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from strandline.collections.config import ROOT_DEVICE
from strandline.collections.errors import forbidden, unauthorized
from strandline.collections.nonces import Nonces
from strandline.collections.paths import IDENTITY
from strandline.collections.permissions import ANONYMOUS, Caller, Certificate, Scope
from strandline.collections.revocation_files import RevocationFiles
from strandline.collections.settings import SKEW_MS, CollectionsSettings
from strandline.signing import certificates, signed_requests
from strandline.signing.certificates import BadCap
from strandline.signing.keys import user_id, verify

#: The maximum number of cached certificates. One takes about three kilobytes, and at most eight.
MAX_CERTIFICATES = 4096

_KEY = re.compile("[0-9a-f]{64}")


class Certificates:
    """The most recently presented certificates that were valid, so that each is verified once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Certificate] = {}

    def __len__(self) -> int:
        return len(self._known)

    def read(self, text: str, now_s: float) -> Certificate:
        """Return the certificate in a header. Raises BadCap if it is malformed, or not valid now."""
        digest = sha256(text.encode("latin-1")).digest()
        known = self._known.pop(digest, None)
        if known is None:
            known = _verified(text, now_s)
            if len(self._known) >= MAX_CERTIFICATES:
                del self._known[next(iter(self._known))]
        else:
            known.check_window(now_s)
        # Inserted last, so that the least recently used certificate is dropped first. An expired one is not inserted
        # again.
        self._known[digest] = known
        return known


def _verified(text: str, now_s: float) -> Certificate:
    try:
        document = certificates.decode(text)
        certificates.check(document, now_s)
        certificates.check_shared(document)
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
    """The roles that a certificate gives to its presenter."""
    scope = document["scope"]
    roles = {f"cap:{op}:{collection}" for op in scope["ops"] for collection in scope["collections"]}
    if document["kind"] != "device":
        roles.update(f"delegated:{document['issUserId']}:{collection}" for collection in scope["collections"])
    elif document["iss"] == document["sub"]:
        roles.add(ROOT_DEVICE)
    return roles


class SignedRequest(NamedTuple):
    """A request with its signature. ``target`` is the path with the query string. ``public_key`` is needed with a
    certificate for an audience, which does not name the key. ``scope_paths`` are the paths that the certificate has to
    cover."""

    method: str
    target: str
    host: str
    body: bytes
    signature: str
    ts: int
    nonce: str
    public_key: str
    scope_paths: Sequence[str]


class Capabilities:
    """Checks certificates and signatures. Belongs to the thread of the event loop."""

    def __init__(self, settings: CollectionsSettings, revocations: RevocationFiles | None = None) -> None:
        self._anonymous = settings.anonymous
        self._certificates = Certificates()
        self._nonces = Nonces(settings.max_nonces)
        self.revocations = RevocationFiles(()) if revocations is None else revocations

    def anonymous(self) -> Caller:
        """The caller of a request without a certificate. Raises CollectionError (``unauthorized``) if the settings
        require one."""
        if self._anonymous:
            return ANONYMOUS
        raise unauthorized()

    def read(self, text: str, signed_at: int, now: int) -> Certificate:
        """Return the certificate in the header of a request that was signed at ``signed_at``. Times are in
        milliseconds. Raises CollectionError (``unauthorized``) if the certificate is not valid now, or the request is
        too old."""
        if abs(signed_at - now) > SKEW_MS:
            raise unauthorized()
        try:
            return self._certificates.read(text, now / 1000)
        except BadCap:
            raise unauthorized() from None

    def check(
        self,
        certificate: Certificate,
        request: SignedRequest,
        now: int,
        params: Mapping[str, str],
        *,
        repeatable: bool = False,
    ) -> Caller:
        """Return the sender of a signed request. ``params`` are the parameters of its path. The request is remembered,
        so checking it again fails as a replay; if the request is ``repeatable``, it returns a caller that
        ``is_repeated`` instead. Raises :class:`CollectionError`."""
        presenter = _presenter(certificate, request)
        signed = signed_requests.signed_bytes(
            request.method, request.target, request.host, request.body, request.ts, request.nonce
        )
        if not verify(presenter, request.signature, signed):
            raise unauthorized()
        audience = certificate.document.get("aud")
        if audience is not None and presenter not in audience:
            raise forbidden()
        is_repeated = not self._nonces.take(presenter.lower(), request.nonce, request.ts, now)
        if is_repeated and not repeatable:
            raise unauthorized()
        if self.revocations.list.is_revoked(certificate.document):
            raise unauthorized()
        caller = _caller(certificate, presenter, request, params)
        return msgspec.structs.replace(caller, request_id=request_id_of(presenter, signed), is_repeated=is_repeated)

    def is_valid(self, caller: Caller, now: int) -> bool:
        """Whether the certificate that a caller presented earlier is still valid at ``now``. A caller without one stays
        as it is."""
        certificate = caller.certificate
        if certificate is None:
            return True
        try:
            certificate.check_window(now / 1000)
        except BadCap:
            return False
        return not self.revocations.list.is_revoked(certificate.document)


def _presenter(certificate: Certificate, request: SignedRequest) -> str:
    """The key that must have signed the request."""
    if certificate.kind != "audience":
        subject: str = certificate.document["sub"]
        return subject
    if not _KEY.fullmatch(request.public_key):
        raise unauthorized()
    return request.public_key


def _caller(certificate: Certificate, presenter: str, request: SignedRequest, params: Mapping[str, str]) -> Caller:
    """The caller, if the certificate covers the path and the path does not belong to another user."""
    document, scope = certificate.document, certificate.scope
    if certificate.kind == "device":
        identity = document["issUserId"]
    elif certificate.kind == "member":
        identity = document["subUserId"]
    else:
        identity = user_id(presenter)
    if certificate.kind != "device" and not scope.paths:
        raise forbidden()
    check_scope(scope, identity, request.scope_paths)
    if params.get(IDENTITY, identity) != identity:
        raise forbidden()
    return Caller(
        identity=identity,
        roles=certificate.roles,
        presenter=presenter,
        certificate=certificate,
        scope=scope,
    )


def check_scope(scope: Scope, identity: str, paths: Sequence[str]) -> None:
    """Raise CollectionError (``forbidden``) unless the scope covers all paths."""
    if not all(scope.covers(path, identity) for path in paths):
        raise forbidden()


def request_id_of(presenter: str, signed: bytes) -> str:
    """The id of a request, in 22 characters: the same for the same signed bytes only, which include the body and the
    nonce."""
    return urlsafe_b64encode(sha256(presenter.lower().encode() + signed).digest()[:16]).rstrip(b"=").decode()
