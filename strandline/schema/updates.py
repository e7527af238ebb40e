"""Updates of a registry: which requests are valid, and the resulting registry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from strandline.query.config import SearchConfig
from strandline.query.config_parser import parse_search_config
from strandline.query.declaration import SearchDeclaration
from strandline.query.errors import QueryError
from strandline.schema.errors import SchemaError
from strandline.schema.evolution import evolve, prove
from strandline.schema.lenses import Lens, LensDocument, parse_lens
from strandline.schema.options import check_members
from strandline.schema.routing import RoutingKey, parse_routing_key
from strandline.schema.validation import Validation, levels

if TYPE_CHECKING:
    from strandline.schema.registry import Registry

ApiVersion = Literal["durable.streams/schema-registry/v1"]
API_VERSION: ApiVersion = "durable.streams/schema-registry/v1"
#: Sequence numbers must be integers that JavaScript represents exactly.
MAX_SEQUENCE = 2**53 - 1
#: A registry is stored with its log, which limits its size.
MAX_UPDATE_BYTES = 1 << 20

#: Maximum objects and arrays in an update: the cost of proving a lens grows faster than their number.
MAX_PARTS = 10_000


class SchemaUpdate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The body of an update."""

    api_version: ApiVersion | UnsetType = UNSET
    schema: dict[str, Any] | bool | UnsetType = UNSET
    lens: LensDocument | UnsetType | None = UNSET
    routing_key: RoutingKey | UnsetType | None = UNSET
    search: SearchDeclaration | UnsetType | None = UNSET


def parse_update(body: bytes) -> dict[str, Any]:
    """Parse an update and refuse unknown keys. Raises SchemaError."""
    if len(body) > MAX_UPDATE_BYTES:
        raise SchemaError(f"schema update is larger than {MAX_UPDATE_BYTES} bytes")
    try:
        update = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SchemaError("schema update must be valid JSON") from None
    if not isinstance(update, dict):
        raise SchemaError("schema update must be a JSON object")
    check_members(update, SchemaUpdate, "schemaUpdate")
    check_parts(update, "schema update")
    if update.pop("apiVersion", API_VERSION) != API_VERSION:
        raise SchemaError("invalid schema apiVersion")
    if not update:
        raise SchemaError("schema update must include schema, routingKey, or search")
    if "schema" not in update:
        if "lens" in update:
            raise SchemaError("schema update lens requires schema")
        if len(update) > 1:
            raise SchemaError("missing schema")
    elif "routingKey" in update and not isinstance(update["routingKey"], dict):
        raise SchemaError("schema update routingKey must be an object when schema is provided")
    return update


def check_parts(document: object, what: str) -> None:
    """Raise SchemaError if a document has too many parts."""
    if sum(map(len, levels(document))) > MAX_PARTS:
        raise SchemaError(f"{what} has more than {MAX_PARTS} objects and arrays")


def updated(registry: Registry, update: dict[str, Any], next_sequence: int) -> Registry:
    """Return the updated registry. Raises SchemaError."""
    if "schema" not in update:
        if "routingKey" in update:
            return replace(registry, routing_key=parse_routing_key(update["routingKey"]))
        return replace(registry, search=parse_search(update["search"]))
    Validation(update["schema"])
    return _first(registry, update, next_sequence) if not registry.current_version else (
        _next(registry, update, next_sequence))  # fmt: skip


def parse_search(document: object) -> SearchConfig | None:
    """Return the search configuration that a document declares; None if the document is null. Raises SchemaError."""
    if document is None:
        return None
    try:
        return parse_search_config(document)
    except QueryError as error:
        raise SchemaError(str(error)) from None


def check_sequence(next_sequence: int, *, first: bool) -> None:
    """Raise unless a version can start here."""
    if first and next_sequence:
        raise SchemaError("first schema requires empty stream")
    if next_sequence > MAX_SEQUENCE:
        raise SchemaError("offset exceeds MAX_SAFE_INTEGER")


def _first(registry: Registry, update: dict[str, Any], next_sequence: int) -> Registry:
    check_sequence(next_sequence, first=True)
    if update.get("lens") is not None:
        _lens(registry, update)
    return replace(
        registry,
        current_version=1,
        routing_key=parse_routing_key(update.get("routingKey")),
        search=parse_search(update["search"]) if "search" in update else registry.search,
        boundaries=((0, 1),),
        schemas={1: update["schema"]},
    )


def _next(registry: Registry, update: dict[str, Any], next_sequence: int) -> Registry:
    if update.get("lens") is None:
        raise SchemaError("lens required")
    lens, version = _lens(registry, update), registry.current_version
    if version not in registry.schemas:
        raise SchemaError("missing current schema")
    prove(lens.operations, registry.schemas[version], update["schema"])
    _check_history(registry, lens)
    check_sequence(next_sequence, first=False)
    key = parse_routing_key(update["routingKey"]) if "routingKey" in update else registry.routing_key
    return replace(
        registry,
        current_version=version + 1,
        routing_key=key,
        search=parse_search(update["search"]) if "search" in update else registry.search,
        boundaries=(*registry.boundaries, (next_sequence, version + 1)),
        schemas={**registry.schemas, version + 1: update["schema"]},
        lenses={**registry.lenses, version: lens},
    )


def _lens(registry: Registry, update: dict[str, Any]) -> Lens:
    lens, version = parse_lens(update["lens"], update["schema"]), registry.current_version
    if (lens.source, lens.target) != (version, version + 1):
        raise SchemaError("lens version mismatch", status=409)
    if lens.schema != registry.schema:
        raise SchemaError("lens schema mismatch")
    return lens


def _check_history(registry: Registry, lens: Lens) -> None:
    """Prove the lens for records of older versions too. Other lenses promote them, and they need not fulfil everything
    that the current schema requires. Without a proof, the history could become unreadable."""
    for _, version in registry.versions:
        if not 0 < version < registry.current_version:
            continue
        shape = registry.schemas[version]
        for earlier in range(version, registry.current_version):
            shape = evolve(shape, registry.lenses[earlier].operations)
        try:
            evolve(shape, lens.operations)
        except SchemaError as error:
            raise SchemaError(f"{error} in records of version {version}") from None
