"""Permissions: the caller of a request with its certificate, and what the caller may do with a collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from strandline.collections.config import PUBLIC, ROOT_DEVICE, SELF, Collection
from strandline.collections.errors import CollectionError, forbidden
from strandline.collections.paths import IDENTITY, StoragePath
from strandline.signing import certificates
from strandline.signing.certificates import BadCap
from strandline.signing.globs import covers


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a certificate: operations, collections and paths. Without ``paths`` it covers every path."""

    ops: frozenset[str]
    collections: frozenset[str]
    paths: tuple[str, ...] | None = None

    def allows(self, op: str, collection: str) -> bool:
        return op in self.ops and ("*" in self.collections or collection in self.collections)

    def covers(self, path: str, identity: str) -> bool:
        return covers(self.paths, path, identity)


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A well-formed certificate with a valid signature of its issuer. It may be expired or revoked."""

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


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request. ``presenter`` is the key that signed the request, if its signature was checked.
    ``request_id`` identifies a signed request with its body, so that a repeated append is recognised. If
    ``is_repeated``, the server has seen a request with the same nonce: it may only give the first answer to the same
    request again. ``certificate`` is the one that the request presented, if any."""

    identity: str = ""
    roles: frozenset[str] = frozenset()
    presenter: str | None = None
    request_id: str | None = None
    is_repeated: bool = False
    certificate: Certificate | None = None
    scope: Scope | None = None

    def with_roles(self, roles: Iterable[str]) -> Caller:
        return msgspec.structs.replace(self, roles=self.roles.union(roles))


#: A caller of a public operation, who is not identified.
UNIDENTIFIED = Caller()
#: A caller without a certificate.
ANONYMOUS = Caller(roles=frozenset((PUBLIC,)))


def with_self(caller: Caller, path: StoragePath, params: Mapping[str, str]) -> Caller:
    """Add the role ``self`` to the caller if the document is the caller's own."""
    if caller.identity and path.has_identity and params.get(IDENTITY) == caller.identity:
        return caller.with_roles((SELF,))
    return caller


def check_access(collection: Collection, op: str, caller: Caller) -> None:
    """Raise CollectionError (``forbidden``) unless a role of the caller allows ``op`` (read, write or list)."""
    if not may(collection, op, caller):
        raise forbidden()


def may(collection: Collection, op: str, caller: Caller) -> bool:
    if collection.root_only and ROOT_DEVICE not in caller.roles:
        return False
    needed = collection.roles_for(op)
    if PUBLIC in needed:
        return True
    held = caller.roles.intersection(needed)
    if not held:
        return False
    if caller.scope is None or not collection.strict:
        return True
    # A role ``cap:…`` already expresses what the certificate allows. Every other role is narrowed by the scope of the
    # certificate: a device that may only read cannot write, even to a document of its own user.
    return any(role.startswith("cap:") for role in held) or caller.scope.allows(op, collection.name)


def check_fields_writable(collection: Collection, roles: frozenset[str], data: Iterable[str]) -> None:
    """Raise CollectionError (``field_not_writable``) if the data has a field that these roles may not send."""
    if not collection.field_permissions:
        return
    present = set(data)
    for field, permission in collection.field_permissions.items():
        if field in present and not _grants(permission.write_roles, roles):
            raise CollectionError("field_not_writable", f"Field '{field}' is not writable with your roles")


def hidden_fields(collection: Collection, roles: frozenset[str]) -> frozenset[str]:
    """The fields that callers with these roles do not see."""
    permissions = collection.field_permissions
    if not permissions:
        return frozenset()
    return frozenset(field for field in permissions if not _grants(permissions[field].read_roles, roles))


def _grants(needed: tuple[str, ...], held: frozenset[str]) -> bool:
    return not needed or PUBLIC in needed or not held.isdisjoint(needed)


def role_filtered(collection: Collection, roles: frozenset[str]) -> bool:
    """Whether callers with these roles may learn that the collection exists."""
    return not roles.isdisjoint(collection.read_roles) or not roles.isdisjoint(collection.write_roles)
