"""What a caller may do with a collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from strandline.protocols.collections.config import PUBLIC, ROOT_DEVICE, SELF, Collection
from strandline.protocols.collections.problems import Refused, forbidden
from strandline.protocols.collections.template import IDENTITY, Template
from strandline.signing.globs import covers


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a certificate is limited to. Without ``paths`` every path is covered."""

    ops: frozenset[str]
    collections: frozenset[str]
    paths: tuple[str, ...] | None = None

    def allows(self, op: str, collection: str) -> bool:
        return op in self.ops and ("*" in self.collections or collection in self.collections)

    def covers(self, path: str, identity: str) -> bool:
        return covers(self.paths, path, identity)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. ``presenter`` is the key that signed the request, if one did; ``request_id`` then names the request, so
    that an append can be recognised when it is replayed."""

    identity: str = ""
    roles: frozenset[str] = frozenset()
    presenter: str | None = None
    request_id: str | None = None
    scope: Scope | None = None

    def with_roles(self, roles: Iterable[str]) -> Caller:
        return msgspec.structs.replace(self, roles=self.roles.union(roles))


#: Whoever calls what everybody may: nobody has looked who it is.
UNASKED = Caller()
#: Somebody without a certificate.
ANONYMOUS = Caller(roles=frozenset((PUBLIC,)))


def with_self(caller: Caller, template: Template, params: Mapping[str, str]) -> Caller:
    """The caller with the role ``self``, if the document is its own."""
    if caller.identity and template.has_identity and params.get(IDENTITY) == caller.identity:
        return caller.with_roles((SELF,))
    return caller


def check_access(collection: Collection, op: str, caller: Caller) -> None:
    """Raise :class:`Refused` unless the caller (with all of its roles) may do ``op`` (read, write or list)."""
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
    # A role of a certificate names what the certificate allows. Of any other role a certificate gives only so much of
    # it as it allows: a device that may only read does not write because it belongs to whom the document belongs.
    return any(role.startswith("cap:") for role in held) or caller.scope.allows(op, collection.name)


def check_fields_writable(collection: Collection, roles: frozenset[str], data: Iterable[str]) -> None:
    """Raise :class:`Refused` if the data has a field that only others may send."""
    if not collection.field_permissions:
        return
    present = set(data)
    for field, permission in collection.field_permissions.items():
        if field in present and not _grants(permission.write_roles, roles):
            raise Refused(403, f"Field '{field}' is not writable with your roles")


def hidden_fields(collection: Collection, roles: frozenset[str]) -> frozenset[str]:
    """The fields that are not shown to somebody with these roles."""
    permissions = collection.field_permissions
    return frozenset(field for field in permissions if not _grants(permissions[field].read_roles, roles))


def _grants(needed: tuple[str, ...], held: frozenset[str]) -> bool:
    return not needed or PUBLIC in needed or not held.isdisjoint(needed)


def role_filtered(collection: Collection, roles: frozenset[str]) -> bool:
    """Whether somebody with these roles gets to know of the collection."""
    return not roles.isdisjoint(collection.read_roles) or not roles.isdisjoint(collection.write_roles)
