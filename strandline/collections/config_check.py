"""Checks a configuration: errors where options contradict each other, warnings where they are likely a mistake. All of
them are reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from strandline.collections.config import (
    LIST,
    MAX_VERSIONS,
    PUBLIC,
    READ,
    ROOT_DEVICE,
    SELF,
    WRITE,
    AppendOnly,
    Collection,
    CollectionsConfig,
    RateLimit,
)
from strandline.collections.elements import BadObjectSchema, ObjectSchema
from strandline.collections.errors import BadCollections
from strandline.collections.paths import IDENTITY, BadStoragePath, StoragePath, document_path
from strandline.collections.rate_limits import ACTIONS, UnresolvedLimit, counters_of
from strandline.engine.errors import BadName
from strandline.engine.record import PLAIN_NAME, check_name
from strandline.nearest_name import nearest_name
from strandline.query.config_parser import MAX_FIELDS

_NAMESPACE = re.compile("[a-zA-Z0-9_-]+")
#: Words of the protocol that can stand in the place of a namespace in a path.
_PROTOCOL_WORDS = frozenset(("pull", "push", "list", "live", "health", "batch", "config"))
#: Other routes of the server in that place, or after ``/v1/``.
_SERVER_WORDS = frozenset(
    ["v0", "v1", "metrics", "healthz", "readyz", "pipeline", "tables", "arrow", "clients", "console"]
).union(["stream", "streams", "server", "observe", "traces"])
#: Roles that certificates give.
_CERTIFIED_ROLE = re.compile(r"cap:(read|write|list):.|delegated:.+:.", re.DOTALL)
_CAP_ROLE = re.compile(r"cap:(read|write|list):(.+)", re.DOTALL)


def check(config: CollectionsConfig) -> None:
    """Raise :class:`BadCollections` with every error in the configuration."""
    errors = list(_errors(config))
    if errors:
        raise BadCollections(errors)


def warnings_about(config: CollectionsConfig, *, has_role_functions: bool = True) -> list[str]:
    """Warnings about a valid configuration: options that are likely a mistake, or have no effect. Without role
    functions, callers have only the roles of the protocol."""
    return [
        f"{start_of(namespace, collection)}: {doubt}"
        for namespace, collections in config.scopes()
        for collection in collections
        for doubt in [
            *_doubts(collection),
            *_shadows(collection, collections),
            *_overlaps(collection, namespace, config),
            *(() if has_role_functions else _role_doubts(collection)),
        ]
    ]


def start_of(namespace: str, collection: Collection) -> str:
    """The start of errors and warnings about a collection."""
    inside = f'namespace "{namespace}": ' if namespace else ""
    return f'{inside}collection "{collection.name}"'


def _errors(config: CollectionsConfig) -> Iterator[str]:
    documents = [one for _, collections in config.scopes() for one in collections]
    for namespace in config.namespaces:
        yield from (f'namespace "{namespace}": {why}' for why in _namespace_errors(namespace, config))
    for namespace, collections in config.scopes():
        names = set[str]()
        for collection in collections:
            start = start_of(namespace, collection)
            if collection.name in names:
                yield f"{start}: another collection has the same name"
            names.add(collection.name)
            for why in _collection_errors(collection, config.rate_limit, documents):
                yield f"{start}: {why}"
            first = next(one for one in collections if one.bundle == collection.bundle)
            if collection.bundle is not None and first.storage_path != collection.storage_path:
                yield f'{start}: the storage_path of all members of the bundle "{collection.bundle}" must be the same'


def _namespace_errors(namespace: str, config: CollectionsConfig) -> Iterator[str]:
    if not _NAMESPACE.fullmatch(namespace):
        yield "its name must consist of letters, digits, underscores and hyphens"
    if namespace in _PROTOCOL_WORDS:
        yield "this name is reserved by the protocol"
    if namespace in _SERVER_WORDS:
        yield "this name is reserved for another route of the server"
    if not config.namespaces[namespace]:
        yield "it must have at least one collection"


def _collection_errors(
    collection: Collection, everywhere: RateLimit | None, documents: Sequence[Collection]
) -> Iterator[str]:
    try:
        template = document_path(collection)
        check_name(template.text)
    except (BadStoragePath, BadName) as error:
        yield f"storage_path: {error.why if isinstance(error, BadName) else error}"
        return
    if collection.pull_only and collection.push_only:
        yield "it cannot be both pull_only and push_only"
    if collection.root_only and PUBLIC in (*collection.read_roles, *collection.write_roles):
        yield 'root_only cannot be combined with the role "public"'
    if not collection.read_roles and not collection.pull_only:
        yield 'read_roles is empty: all pulls would be refused; use ["public"] to allow every caller'
    yield from _media_errors(collection)
    yield from _append_errors(collection)
    yield from _search_errors(collection)
    if collection.listable:
        yield from _list_errors(collection, template)
    if collection.retain_until_in_lake and collection.durability == "ephemeral":
        yield "retain_until_in_lake cannot be combined with durability ephemeral: the lake has no such documents"
    yield from _rate_errors(collection, everywhere)
    yield from _queue_errors(collection, template, documents)


def _media_errors(collection: Collection) -> Iterator[str]:
    if not collection.allowed_mime_types:
        yield "allowed_mime_types must not be empty"
    elif collection.is_binary:
        yield "allowed_mime_types must include application/json: binary collections are not supported"
    if collection.object_schema is None:
        return
    try:
        ObjectSchema(collection.object_schema)
    except BadObjectSchema as error:
        yield f"object_schema is not a JSON Schema: {error}"


def _append_errors(collection: Collection) -> Iterator[str]:
    append = collection.append_only
    if append is None:
        return
    if collection.retain_until_in_lake:
        yield "retain_until_in_lake is for regular documents; the server removes no elements by itself"
    if collection.max_versions != MAX_VERSIONS:
        yield "max_versions is for regular documents; append_only.max_items limits the elements of a document"
    if collection.pull_only:
        yield "append_only cannot be combined with pull_only: no element could be appended"
    if append.persist:
        if collection.bundle is not None:
            yield "append_only cannot be combined with bundle unless persist is false: a bundle has no elements"
        return
    for name in ("max_items", "chunk_size", "allow_full", "max_pull_limit", "max_checkpoint_age_ms"):
        if getattr(append, name) != getattr(AppendOnly(), name):
            yield f"append_only.{name} requires persist = true: otherwise elements are not stored"


def _search_errors(collection: Collection) -> Iterator[str]:
    if not collection.search:
        return
    if len(set(collection.search)) < len(collection.search):
        yield "search names a field twice"
    if len(collection.search) > MAX_FIELDS:
        yield f"search names {len(collection.search)} fields; at most {MAX_FIELDS} are allowed"
    if collection.append_only is None or not collection.append_only.persist:
        yield "search requires append_only with persist = true: only stored elements can be searched"
    if collection.encryption != "none":
        yield 'search requires encryption = "none": the server cannot read what clients encrypt'


def _list_errors(collection: Collection, template: StoragePath) -> Iterator[str]:
    if collection.bundle is not None:
        yield "listable cannot be combined with bundle"
    elif not template.ends_in_placeholder:
        yield "listable requires a placeholder as the last segment of its storage_path"
    if collection.append_only is not None and not collection.append_only.persist:
        yield "listable cannot be combined with append_only.persist = false: there are no documents to list"


def _rate_errors(collection: Collection, everywhere: RateLimit | None) -> Iterator[str]:
    limits = collection.rate_limit
    if limits is None:
        return
    for action in ACTIONS:
        rule = getattr(limits, action)
        if rule is not None and rule.bucket is not None and (rule.identity is not None or rule.ip is not None):
            yield f"rate_limit.{action} cannot combine a bucket with limits per identity or ip"
    try:
        list(counters_of(collection, everywhere))
    except UnresolvedLimit as error:
        yield str(error)


def _queue_errors(collection: Collection, template: StoragePath, documents: Sequence[Collection]) -> Iterator[str]:
    queue = collection.queue
    if queue is None:
        return
    topic = queue.topic or collection.name
    if not PLAIN_NAME.fullmatch(topic):
        yield f"queue.topic: {topic!r} is not a valid topic name: use up to 255 letters, digits and . _ : -"
    try:
        re.compile(queue.subject_id_pattern)
    except re.error as error:
        yield f"queue.subject_id_pattern is not a regular expression: {error}"
    if queue.subject_param is not None and queue.subject_param not in template.names:
        yield f"queue.subject_param: the storage_path has no placeholder {{{queue.subject_param}}}"
    taken = [other.name for other in documents if other.storage_path == topic and other.is_stored]
    if taken:
        yield (
            f'queue.topic: events cannot be written to the log "{topic}", which is a document of the collection '
            f'"{taken[0]}"; choose another topic'
        )


def _doubts(collection: Collection) -> Iterator[str]:
    append = collection.append_only
    if PUBLIC in collection.write_roles:
        yield 'write_roles has "public": every caller can write to it without a certificate'
    for name, roles in (("read_roles", collection.read_roles), ("write_roles", collection.write_roles)):
        for role in roles:
            found = _CAP_ROLE.fullmatch(role)
            if found and found[2] not in (collection.name, "*"):
                yield (
                    f'{name} has "{role}", which names another collection: certificates for "{found[2]}" also '
                    "give access to this one"
                )
    if (
        SELF in (*collection.read_roles, *collection.write_roles)
        and not StoragePath(collection.storage_path).has_identity
    ):
        yield 'the role "self" has no effect: its storage_path has no {identity}'
    if append is None:
        return
    if not append.persist and collection.queue is None:
        yield "append_only.persist is false and there is no queue: elements are neither stored nor announced"
    if append.chunk_size is not None:
        yield "append_only.chunk_size has no effect: appending to a log does not get slower as it grows"


def _role_doubts(collection: Collection) -> Iterator[str]:
    known = [PUBLIC, SELF, ROOT_DEVICE, *(f"cap:{op}:{collection.name}" for op in (READ, WRITE, LIST))]
    fields = collection.field_permissions
    roles = [
        ("read_roles", collection.read_roles),
        ("write_roles", collection.write_roles),
        *((f"field_permissions.{name}.read_roles", one.read_roles) for name, one in fields.items()),
        *((f"field_permissions.{name}.write_roles", one.write_roles) for name, one in fields.items()),
    ]
    for option, names in roles:
        for role in names:
            if role not in known and not _CERTIFIED_ROLE.match(role):
                near = nearest_name(role, known)
                hint = "" if near is None else f'; did you mean "{near}"?'
                yield f'{option}: no program gives the role "{role}"{hint}'


def _shadows(collection: Collection, collections: Sequence[Collection]) -> Iterator[str]:
    for other in collections:
        if other is collection:
            return
        if _covers_paths(other, collection):
            yield f'its paths are also paths of "{other.name}", which comes first and gets all requests'


def _covers_paths(first: Collection, second: Collection) -> bool:
    """Whether the first collection gets every request for a path of the second."""
    if first.pull_only != second.pull_only or first.push_only != second.push_only:
        return False
    covering, covered = (document_path(one).text.split("/") for one in (first, second))
    return len(covering) == len(covered) and all(
        one == other or one.startswith("{") for one, other in zip(covering, covered, strict=True)
    )


def _overlaps(collection: Collection, namespace: str, config: CollectionsConfig) -> Iterator[str]:
    """Collections of earlier namespaces with some of the same documents. Those with the same path share all of them,
    which is meant."""
    if not collection.is_stored:
        return
    shape = _shape(collection)
    for earlier, others in config.scopes():
        if earlier == namespace:
            return
        for other in others:
            if other.is_stored and _shape(other) != shape and _meet(_shape(other), shape):
                where = f'of namespace "{earlier}"' if earlier else "without a namespace"
                yield (
                    f'some of its documents are also those of "{other.name}" {where}: each collection gives access to '
                    "them with its own roles"
                )


def _shape(collection: Collection) -> list[str]:
    """The segments of a path, with one name for all placeholders except the identity."""
    segments = document_path(collection).text.split("/")
    return ["{}" if one.startswith("{") and one != f"{{{IDENTITY}}}" else one for one in segments]


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether there are documents with both shapes."""
    return len(one) == len(other) and all(
        a == b or a.startswith("{") or b.startswith("{") for a, b in zip(one, other, strict=True)
    )
