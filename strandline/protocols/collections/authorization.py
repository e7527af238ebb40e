"""Authorization of requests: who sends a request, with which roles, and whether the roles suffice.

The headers of a signed request are read here; :mod:`strandline.collections.capabilities` checks what they say.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from hashlib import sha256
from types import MappingProxyType

from strandline.collections.capabilities import Capabilities, SignedRequest, check_scope, request_id_of
from strandline.collections.config import WRITE, CollectionsConfig
from strandline.collections.declaration import DeclaredCollections
from strandline.collections.errors import unauthorized
from strandline.collections.paths import BoundCollection, segments_of
from strandline.collections.permissions import UNIDENTIFIED, Caller, check_access, with_self
from strandline.collections.revocation_files import RevocationFiles
from strandline.collections.roles import RoleFunctions, RoleRequest, Roles, Run
from strandline.protocols.collections.errors import CollectionRefusal
from strandline.service.http import Call, Head
from strandline.signing.certificates import MAX_HEADER, SCHEME

#: The maximum size of the body of a signed push, unless its collection allows more.
MIN_SIGNED_BODY_BYTES = 64 << 10

#: The headers of a signature: it, its time and its nonce.
_SIGNATURE = (b"x-starfish-sig", b"x-starfish-ts", b"x-starfish-nonce")
_WHOLE = re.compile(rb"-?[0-9]{1,18}")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ACTIONS = frozenset(("pull", "push", "list", "live"))
_WRITES = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}


def open_authorizer(config: CollectionsConfig, declared: DeclaredCollections, run: Run) -> Authorizer:
    """Raises BadRevocationFile."""
    settings = config.settings
    files = RevocationFiles(settings.revocations, declared.revocations)
    files.load()
    return Authorizer(Capabilities(settings, files), run, declared.roles, settings.role_resolver_timeout_ms)


class Authorizer:
    """Answers at once, unless the application has role functions: then with an awaitable. Everything raises
    :class:`CollectionRefusal` or :class:`CollectionError`."""

    def __init__(
        self, capabilities: Capabilities, run: Run, roles: Roles | None = None, timeout_ms: int = 5000
    ) -> None:
        """``run`` calls a function of the application on a thread."""
        self.capabilities = capabilities
        self._roles = RoleFunctions(Roles() if roles is None else roles, run, timeout_ms)

    def authorize(
        self, call: Call, bound: BoundCollection, op: str, params: Mapping[str, str], now: int
    ) -> Caller | Awaitable[Caller]:
        """The caller with all roles, who may do ``op`` (read, write or list) with the document of these parameters."""
        collection = bound.collection
        if collection.is_open(op):
            # Every caller may do this: a certificate in the request is not checked, and its nonce is not used up.
            return _repeatable(call) if op == WRITE else UNIDENTIFIED
        if self._roles.resolves or self._roles.enriches:
            return self._authorize_later(call, bound, op, params, now)
        limit = collection.max_body_bytes
        caller = self.check_signature(call, now, params=params, max_body_bytes=limit, repeatable=op == WRITE)
        caller = with_self(caller, bound.path, params)
        check_access(collection, op, caller)
        return caller

    async def _authorize_later(
        self, call: Call, bound: BoundCollection, op: str, params: Mapping[str, str], now: int
    ) -> Caller:
        caller = await self._resolve(call, now, params, bound.collection.max_body_bytes, repeatable=op == WRITE)
        caller = await self._enrich(caller, bound, params)
        check_access(bound.collection, op, caller)
        return caller

    def identify(
        self, call: Call, now: int, params: Mapping[str, str] = MappingProxyType({})
    ) -> Caller | Awaitable[Caller]:
        """The caller of a request for several documents, or for none. Access to each document is checked
        separately."""
        if self._roles.resolves:
            return self._resolve(call, now, params, 0, repeatable=False)
        return self.check_signature(call, now, params=params)

    def enrich(self, caller: Caller, bound: BoundCollection, params: Mapping[str, str]) -> Caller | Awaitable[Caller]:
        """The caller with the roles for one document."""
        if self._roles.enriches:
            return self._enrich(caller, bound, params)
        return with_self(caller, bound.path, params)

    async def _enrich(self, caller: Caller, bound: BoundCollection, params: Mapping[str, str]) -> Caller:
        return await self._roles.enrich(with_self(caller, bound.path, params), params)

    async def _resolve(
        self, call: Call, now: int, params: Mapping[str, str], limit: int, *, repeatable: bool
    ) -> Caller:
        caller = await self._roles.resolve(_request(call)) if self._roles.resolves else None
        if caller is None:
            return self.check_signature(call, now, params=params, max_body_bytes=limit, repeatable=repeatable)
        if caller.scope is not None:
            check_scope(caller.scope, caller.identity, paths_in_scope(call.head.path))
        return caller

    def check_signature(
        self, call: Call, now: int, *, params: Mapping[str, str], max_body_bytes: int = 0, repeatable: bool = False
    ) -> Caller:
        """The caller that the certificate and the signature of a request name, at the time ``now`` in milliseconds.
        ``params`` are the parameters of the path, ``max_body_bytes`` is the limit of the collection. The request is
        remembered: checking it again is a replay, unless it is ``repeatable``."""
        head = call.head
        authorization = head.headers.get(b"authorization", b"").decode("latin-1")
        if not authorization.startswith(SCHEME):
            return self.capabilities.anonymous()
        if len(authorization) > MAX_HEADER:
            raise unauthorized()
        headers = head.headers
        signature, ts, nonce = (headers.get(name) for name in _SIGNATURE)
        if signature is None or ts is None or nonce is None or not _WHOLE.fullmatch(ts):
            raise unauthorized()
        certificate = self.capabilities.read(authorization[len(SCHEME) :].strip(), int(ts), now)
        request = SignedRequest(
            head.method,
            f"{head.path}?{head.query_string}" if head.query_string else head.path,
            host_of(head),
            _signed_body(call, max(max_body_bytes, MIN_SIGNED_BODY_BYTES)),
            signature.decode("latin-1"),
            int(ts),
            nonce.decode("latin-1"),
            headers.get(b"x-starfish-pub", b"").decode("latin-1"),
            paths_in_scope(head.path),
        )
        return self.capabilities.check(certificate, request, now, params, repeatable=repeatable)


def _repeatable(call: Call) -> Caller:
    """An unidentified caller. If the request is signed, it is recognised when it is repeated. The signature is not
    checked: the id of the request covers the body, so another request cannot take its place."""
    head = call.head
    signed = [head.headers.get(name) for name in _SIGNATURE]
    if None in signed:
        return UNIDENTIFIED
    # Bytes that no verified request has.
    whole = b"\n".join((head.path.encode(), *filter(None, signed), sha256(call.body).digest()))
    return Caller(request_id=request_id_of("", whole))


def _request(call: Call) -> RoleRequest:
    head = call.head
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers.items()}
    return RoleRequest(method=head.method, path=head.path, query=head.query_string, headers=headers, body=call.body)


def is_json(head: Head) -> bool:
    """Whether a push declares its body as JSON. Only JSON bodies are stored, so exactly those must be signed."""
    return b"application/json" in head.headers.get(b"content-type", b"").lower()


def _signed_body(call: Call, limit: int) -> bytes:
    """The bytes that the signature covers. The protocol signs uploads of other media types without their body; no
    handler stores those."""
    head = call.head
    if head.method not in _WRITES:
        return b""
    length = head.headers.get(b"content-length")
    if length is None:
        raise CollectionRefusal(413, "missing Content-Length on write")
    if not _LENGTH.fullmatch(length):
        raise CollectionRefusal(413, "invalid Content-Length")
    if int(length) > limit or len(call.body) > limit:
        raise CollectionRefusal(413, "request body too large")
    return call.body if is_json(head) or not head.headers.get(b"content-type", b"").strip() else b""


def paths_in_scope(raw_path: str) -> list[str]:
    """The paths that a certificate must cover for a request; none for a batch pull, wherever it is mounted, because
    every document is checked separately there.

    A segment of one dot does not count. But it may be a part of the key of a document, and then that key must be
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
    """The host as a browser has it in ``URL.host``: in lower case, without the default port of the scheme."""
    host = head.headers.get(b"host", b"").strip().lower()
    scheme = head.headers.get(b"x-forwarded-proto", b"http").partition(b",")[0].strip().lower()
    return host.removesuffix(_DEFAULT_PORTS.get(scheme, b":80")).decode("latin-1")


def address_of(call: Call, trusted_proxy_hops: int) -> str:
    """The address of the client; empty if it is unknown.

    A client can write anything into ``X-Forwarded-For``. The entry that counts is the one that the outermost trusted
    proxy added: the one at ``trusted_proxy_hops`` from the right. A header with fewer entries did not come through the
    proxies.
    """
    if trusted_proxy_hops:
        forwarded = call.head.headers.get(b"x-forwarded-for", b"").decode("latin-1")
        hops = [hop.strip() for hop in forwarded.split(",") if hop.strip()]
        if len(hops) >= trusted_proxy_hops:
            return hops[-trusted_proxy_hops]
    return call.peer
