"""Certificates that were looked at before: who presents one every time does not cost a verification every time."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from strandline.protocols.collections.config import ROOT_DEVICE
from strandline.protocols.collections.nonces import Full, Nonces
from strandline.protocols.collections.permissions import ANONYMOUS, Caller, Scope
from strandline.protocols.collections.problems import Refused, forbidden, retry_after, unauthorized
from strandline.protocols.collections.revocation_files import RevocationFiles
from strandline.protocols.collections.settings import SKEW_MS, CollectionsSettings
from strandline.protocols.collections.template import IDENTITY, segments_of
from strandline.protocols.http import Call, Head
from strandline.signing import certificates, signed_requests
from strandline.signing.certificates import MAX_HEADER, SCHEME, BadCap
from strandline.signing.keys import user_id

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
        if now_s < self.not_before - certificates.MAX_SKEW_S:
            raise BadCap("not-yet-valid")
        if now_s > self.expires + certificates.MAX_SKEW_S:
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
    """The roles that a certificate gives to whoever presents it."""
    scope = document["scope"]
    roles = {f"cap:{op}:{collection}" for op in scope["ops"] for collection in scope["collections"]}
    if document["kind"] != "device":
        roles.update(f"delegated:{document['issUserId']}:{collection}" for collection in scope["collections"])
    elif document["iss"] == document["sub"]:
        roles.add(ROOT_DEVICE)
    return roles


# --- Who asks: the certificate that came with a request, and the signature that shows whose request it is -----------

#: The body of a signed push may have this size, and more if its collection says so.
MIN_SIGNED_BODY_BYTES = 64 << 10

_WHOLE = re.compile(rb"-?[0-9]{1,18}")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_KEY = re.compile(rb"[0-9a-f]{64}")
_ACTIONS = frozenset(("pull", "push", "list"))
_WRITES = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}


class Signature(NamedTuple):
    """What the headers say of the signature of a request."""

    text: str
    ts: int
    nonce: str


class Callers:
    """Looks who asks. Everything is done at once, on the thread of the event loop."""

    def __init__(self, settings: CollectionsSettings, revocations: RevocationFiles | None = None) -> None:
        self._anonymous = settings.anonymous
        self._certificates = Certificates()
        self._nonces = Nonces(settings.max_nonces)
        self.revocations = RevocationFiles(()) if revocations is None else revocations

    def identify(self, call: Call, now: int, *, params: Mapping[str, str], max_body_bytes: int = 0) -> Caller:
        """Who asks, at the time ``now`` in milliseconds. ``params`` are those of the path, and ``max_body_bytes`` is
        what its collection allows. Takes note of the request: asking twice about one is a replay. Raises
        :class:`Refused`."""
        head = call.head
        authorization = head.headers.get(b"authorization", b"").decode("latin-1")
        if not authorization.startswith(SCHEME):
            if self._anonymous:
                return ANONYMOUS
            raise unauthorized()
        if len(authorization) > MAX_HEADER:
            raise unauthorized()
        signature = _signature(head, now)
        try:
            certificate = self._certificates.read(authorization[len(SCHEME) :].strip(), now / 1000)
        except BadCap:
            raise unauthorized() from None
        body = _signed_body(call, max(max_body_bytes, MIN_SIGNED_BODY_BYTES))
        presenter = _presenter(head, certificate)
        if not signed_requests.holds(
            presenter, signature.text, head.method, _target(head), host_of(head), body, *signature[1:]
        ):
            raise unauthorized()
        self._check_fresh(certificate, presenter, signature, now)
        return _bound(head, certificate, presenter, params, _request_id(presenter, signature.nonce))

    def _check_fresh(self, certificate: Certificate, presenter: str, signature: Signature, now: int) -> None:
        """That the holder is one of those it was made for, that the request is new, and the certificate not revoked."""
        audience = certificate.document.get("aud")
        if audience is not None and presenter not in audience:
            raise forbidden()
        try:
            if not self._nonces.take(presenter.lower(), signature.nonce, signature.ts, now):
                raise unauthorized()
        except Full as full:
            seconds = -(-full.retry_ms // 1000)
            raise Refused(503, "Too many signed requests", headers=retry_after(seconds)) from None
        if self.revocations.list.is_revoked(certificate.document):
            raise unauthorized()


def _request_id(presenter: str, nonce: str) -> str:
    """What tells a signed request from all others, in 22 characters."""
    text = f"{presenter.lower()}|{nonce}".encode("utf-8", "surrogatepass")
    return urlsafe_b64encode(sha256(text).digest()[:16]).rstrip(b"=").decode()


def _signature(head: Head, now: int) -> Signature:
    headers = head.headers
    text, ts, nonce = (headers.get(name) for name in (b"x-starfish-sig", b"x-starfish-ts", b"x-starfish-nonce"))
    if text is None or ts is None or nonce is None or not _WHOLE.fullmatch(ts):
        raise unauthorized()
    if abs(int(ts) - now) > SKEW_MS:
        raise unauthorized()
    return Signature(text.decode("latin-1"), int(ts), nonce.decode("latin-1"))


def is_json(head: Head) -> bool:
    """Whether a push says that its body is JSON. Only such a body is stored, so exactly such a body must be signed."""
    return b"application/json" in head.headers.get(b"content-type", b"").lower()


def _signed_body(call: Call, limit: int) -> bytes:
    """The bytes that the signature covers. The protocol signs uploads of other media types without their body; no
    handler stores those."""
    head = call.head
    if head.method not in _WRITES:
        return b""
    length = head.headers.get(b"content-length")
    if length is None:
        raise Refused(413, "missing Content-Length on write")
    if not _LENGTH.fullmatch(length):
        raise Refused(413, "invalid Content-Length")
    if int(length) > limit or len(call.body) > limit:
        raise Refused(413, "request body too large")
    return call.body if is_json(head) or not head.headers.get(b"content-type", b"").strip() else b""


def _presenter(head: Head, certificate: Certificate) -> str:
    """Whose signature it has to be."""
    if certificate.kind != "audience":
        subject: str = certificate.document["sub"]
        return subject
    key = head.headers.get(b"x-starfish-pub", b"")
    if not _KEY.fullmatch(key):
        raise unauthorized()
    return key.decode()


def _bound(head: Head, certificate: Certificate, presenter: str, params: Mapping[str, str], request_id: str) -> Caller:
    """The caller, if its certificate covers the path and the path is not that of somebody else."""
    document, scope = certificate.document, certificate.scope
    if certificate.kind == "device":
        identity = document["issUserId"]
    elif certificate.kind == "member":
        identity = document["subUserId"]
    else:
        identity = user_id(presenter)
    if certificate.kind != "device" and not scope.paths:
        raise forbidden()
    check_scope(head, scope, identity)
    if params.get(IDENTITY, identity) != identity:
        raise forbidden()
    return Caller(identity=identity, roles=certificate.roles, presenter=presenter, request_id=request_id, scope=scope)


def check_scope(head: Head, scope: Scope, identity: str) -> None:
    """Refuse a path that the scope does not cover."""
    if not all(scope.covers(path, identity) for path in paths_in_scope(head.path)):
        raise forbidden()


def paths_in_scope(raw_path: str) -> list[str]:
    """What of a path the patterns of a certificate are about; nothing for a batch pull, wherever it is mounted: there
    every document is looked at by itself.

    A segment of one dot counts as none. But it may be a part of the key of a document, and then that key has to be
    covered as well.
    """
    segments = [segment for segment in segments_of(raw_path) if segment]
    action = next((at for at, segment in enumerate(segments) if segment in _ACTIONS), -1)
    if action > 0 and segments[action - 1 :] == ["batch", "pull"]:
        return []
    whole = segments[action + 1 :]
    canonical = [segment for segment in whole if segment != "."]
    return ["/".join(canonical)] if canonical == whole else ["/".join(canonical), "/".join(whole)]


def host_of(head: Head) -> str:
    """The host as a browser has it in ``URL.host``: small letters, and no port where it goes without saying."""
    host = head.headers.get(b"host", b"").strip().lower()
    scheme = head.headers.get(b"x-forwarded-proto", b"http").partition(b",")[0].strip().lower()
    return host.removesuffix(_DEFAULT_PORTS.get(scheme, b":80")).decode("latin-1")


def _target(head: Head) -> str:
    return f"{head.path}?{head.query_string}" if head.query_string else head.path
