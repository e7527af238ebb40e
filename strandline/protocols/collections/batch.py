"""``GET /batch/pull``: elements of many documents in one answer. Each document has its own result or error."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import UNSET

from strandline.collections.config import READ, AppendOnly, Collection
from strandline.collections.documents import EMPTY
from strandline.collections.errors import CollectionError, forbidden, invalid_path
from strandline.collections.paths import IDENTITY, BoundCollection, PathIndex, key_is_safe, values_fit
from strandline.collections.permissions import Caller, check_access, hidden_fields
from strandline.collections.pull import ElementSelection, PullBounds, batch_cost, bound_required, is_expired, select
from strandline.nearest_name import with_nearest
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import CollectionRefusal, collection_refused, invalid
from strandline.protocols.collections.pull import MAX_DIGITS
from strandline.protocols.collections.regular_documents import RegularDocumentHandler
from strandline.protocols.collections.wire import BatchAnswer, BoundsRequest, EntryAnswer, encode, stored
from strandline.service.http import Call, Reply
from strandline.signing.canonical_json import NotJson, canonical, parse

log = logging.getLogger(__name__)

_FULL = (True, 1, "true", "1")
#: Documents are read until an answer has this many bytes. Regular documents can be large, and a batch can name many.
MAX_ANSWER_BYTES = 32 << 20

Sets = list[Mapping[str, Any]]


class BatchRequest(NamedTuple):
    """A request: by the names of collections, sets of parameters and the bounds for each set."""

    names: list[str]
    params: dict[str, Sets]
    bounds: dict[str, list[PullBounds | None]]

    def sets(self, name: str) -> Sets:
        return self.params.get(name, [{}])

    def bounds_at(self, name: str, at: int) -> PullBounds | None:
        return self.bounds[name][at] if name in self.bounds else None


def read_batch(query: Mapping[str, str], most: int) -> BatchRequest:
    """Read a request. Raises CollectionRefusal."""
    listed = query.get("collections", "")
    if not listed:
        raise CollectionRefusal(400, "Missing collections parameter")
    names = list(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))
    if len(names) > most:
        raise CollectionRefusal(400, "Too many collections")
    batch = BatchRequest(names, _params(query.get("params", "")), _bounds(query.get("appendParams", "")))
    for name, bounds in batch.bounds.items():
        documents = len(batch.sets(name))
        if len(bounds) != documents:
            message = f'appendParams["{name}"] has {len(bounds)} entries; expected {documents}, one per document'
            raise CollectionRefusal(400, "append_params_length_mismatch", {"message": message})
    if sum(len(batch.sets(name)) for name in names) > most:
        raise CollectionRefusal(400, "Too many collections")
    return batch


def _lists(text: str, what: str) -> dict[str, list[Any]]:
    """An object of arrays."""
    if not text:
        return {}
    try:
        read = parse(text.encode())
    except (NotJson, UnicodeEncodeError):
        read = None
    if not isinstance(read, dict) or not all(isinstance(each, list) for each in read.values()):
        raise invalid(what)
    return read


def _params(text: str) -> dict[str, Sets]:
    read = _lists(text, "params parameter")
    if not all(isinstance(one, dict) for sets in read.values() for one in sets):
        raise invalid("params parameter")
    return read


def _bounds(text: str) -> dict[str, list[PullBounds | None]]:
    read = _lists(text, "appendParams parameter")
    return {name: [_bounds_of(name, one) for one in entries] for name, entries in read.items()}


def _bounds_of(name: str, entry: Any) -> PullBounds | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise invalid("appendParams parameter")
    try:
        given = msgspec.convert(entry, BoundsRequest)
    except msgspec.ValidationError as error:
        raise CollectionRefusal(400, f'appendParams["{name}"]: {with_nearest(error, BoundsRequest)}') from None
    if given.full in _FULL:
        raise CollectionRefusal(400, f'appendParams["{name}"]: full is not allowed in batch pull')
    return PullBounds(_whole(given.since), _whole(given.last), limit=_whole(given.limit))


def _whole(value: Any) -> int | None:
    """A bound, as a number or as text."""
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:MAX_DIGITS])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise invalid("appendParams parameter")
    return value


class BatchHandler:
    def __init__(self, context: CollectionsContext, index: PathIndex) -> None:
        self._context = context
        self._index = index
        self._regular = RegularDocumentHandler(context, index)

    async def pull(self, call: Call) -> Reply:
        """GET /batch/pull"""
        settings = self._context.settings
        batch = read_batch(call.query, settings.max_collections_per_batch)
        self._check_budget(batch)
        caller = await self._context.caller_of(call)
        collections: dict[str, list[EntryAnswer]] = {name: [] for name in batch.names}
        size = 0
        for name, entries in collections.items():
            for at, one in enumerate(batch.sets(name)):
                if size >= MAX_ANSWER_BYTES:
                    entries.append(_TOO_LARGE)
                    continue
                entry = encode(await self._entry(name, one, batch.bounds_at(name, at), caller))
                size += len(entry)
                entries.append(cast(EntryAnswer, msgspec.Raw(entry)))
        return Reply(encode(BatchAnswer(collections)))

    def _check_budget(self, batch: BatchRequest) -> None:
        total = 0
        for name, entries in batch.bounds.items():
            bound = self._index.get(name)
            collection = None if bound is None else bound.collection
            total += sum(batch_cost(collection, bounds) for bounds in entries if bounds is not None)
        most = self._context.settings.max_batch_append_elements
        if total > most:
            raise CollectionRefusal(
                400,
                "batch_append_limit_exceeded",
                {"message": f"the batch requests up to {total} elements; one batch can request at most {most}"},
            )

    async def _entry(
        self, name: str, given: Mapping[str, Any], bounds: PullBounds | None, caller: Caller
    ) -> EntryAnswer:
        try:
            bound = self._index.get(name)
            if bound is None or (bound.collection.push_only and bound.collection.strict):
                raise CollectionRefusal(404, "Collection not found")
            return await self._pull(bound, given, bounds, caller)
        except CollectionRefusal as refused:
            return _refused(refused)
        except CollectionError as error:
            return _refused(collection_refused(error))
        except Exception:
            log.exception("an entry of a batch pull of %r failed", name)
            return EntryAnswer(error="Internal error")

    async def _pull(
        self, bound: BoundCollection, given: Mapping[str, Any], bounds: PullBounds | None, caller: Caller
    ) -> EntryAnswer:
        context, collection = self._context, bound.collection
        params = _filled(bound, given, caller)
        enriched = context.authorizer.enrich(caller, bound, params)
        caller = await enriched if isawaitable(enriched) else enriched
        check_access(collection, READ, caller)
        key = bound.path.key(params)
        if not key_is_safe(key):
            raise invalid_path()
        if caller.scope is not None and not caller.scope.covers(key, caller.identity):
            raise forbidden()
        if key.rpartition("/")[2] in context.settings.batch_key_deny_suffixes:
            raise forbidden()
        if collection.strict and not self._index.serves(key, bound):
            raise forbidden()
        rules = collection.append_only
        if bounds is not None and (rules is None or not rules.persist):
            raise CollectionRefusal(400, "append_params_not_supported")
        if rules is None:
            return await self._regular.entry(collection, key, caller)
        if not rules.persist:
            return EntryAnswer({}, "", context.hub.now())
        if bounds is not None:
            selection = select(collection, rules, bounds, context.hub.now(), batch=True)
        elif collection.strict:
            raise bound_required()
        else:
            selection = ElementSelection()  # as it was before there were bounds: the whole document
        return await self._elements(collection, rules, key, selection, caller, whole=bounds is None)

    async def _elements(
        self,
        collection: Collection,
        rules: AppendOnly,
        key: str,
        selection: ElementSelection,
        caller: Caller,
        *,
        whole: bool,
    ) -> EntryAnswer:
        context = self._context
        document = context.documents.find(key)
        version = EMPTY if document is None else document.version()
        if version is None:
            assert document is not None
            version = await context.workers.normal.run(document.version_from_disk, part=READ)
        now = context.hub.now()
        if document is None or version is EMPTY:
            return EntryAnswer({} if whole else {rules.field: []}, "", now)
        if is_expired(collection, version.ts, now):
            return EntryAnswer({} if whole else {rules.field: []}, version.hash, now)
        hidden = hidden_fields(collection, caller.roles)
        if rules.field in hidden:
            return EntryAnswer({}, version.hash, now)
        elements = context.reader.read(document, version, selection, hidden)
        if elements is None:
            elements = await context.workers.normal.run(
                context.reader.read_from_disk, document, version, selection, hidden, part=READ
            )
        return EntryAnswer({rules.field: stored(elements.json)}, version.hash, now, elements.more or UNSET)


_TOO_LARGE = EntryAnswer(
    error="batch_too_large",
    message=f"the answer has {MAX_ANSWER_BYTES >> 20} MiB without this document; pull it in another batch",
)


def _refused(refused: CollectionRefusal) -> EntryAnswer:
    return EntryAnswer(error=refused.answer.error, message=refused.answer.message)


def _filled(bound: BoundCollection, given: Mapping[str, Any], caller: Caller) -> dict[str, str]:
    """The parameters of a document: those that the request gives, and the identity of the caller."""
    params: dict[str, str] = {}
    for name in bound.path.names:
        value = given.get(name)
        if isinstance(value, str):
            params[name] = value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            params[name] = canonical(value).decode()
        elif name == IDENTITY and caller.identity:
            params[name] = caller.identity
        else:
            raise CollectionRefusal(400, "Missing required path parameter")
    if not values_fit(params):
        raise invalid_path()
    return params
