"""Collections: the configured ones and their documents.

Like the screens of logs, these show every document that the prefixes of the API key allow. The roles of collections
apply to their own routes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from strandline.collections.collections import Collections
from strandline.collections.paths import BoundCollection, values_fit
from strandline.engine import Log
from strandline.engine.ownership import COLLECTION
from strandline.protocols.console.catalogue import Catalogue, LogSums
from strandline.protocols.console.collection_answers import (
    CollectionRow,
    ConsoleCollectionAnswer,
    ConsoleCollectionsAnswer,
    DocumentKind,
    DocumentRow,
    DocumentsAnswer,
    FieldPermissionRow,
)
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.logs import DEFAULT_LIMIT, MAX_LIMIT
from strandline.service.access import Access
from strandline.service.http import Call, Reply
from strandline.service.parameters import number
from strandline.service.problems import NOT_FOUND, Refusal

_PLACEHOLDER = re.compile(r"\{\w+\}")
#: The maximum number of names that a request for documents looks at. Collections can share the beginning of their
#: paths, so that most names may belong to others.
MAX_EXAMINED = 20_000


class ConsoleCollections:
    def __init__(self, context: ConsoleContext, catalogue: Catalogue) -> None:
        self._context = context
        self._catalogue = catalogue

    async def collections(self, call: Call) -> Reply:
        """GET /console/api/collections"""
        seen = [bound for bound in bound_collections(self._context.collections) if may_see(bound, call.access)]
        if not seen:
            return Reply(msgspec.json.encode(ConsoleCollectionsAnswer(collections=[])))
        logs, prefixes = await self._catalogue.table(), call.access.prefixes

        def look() -> Reply:
            rows = [
                row_of(bound, logs.sums(start_of(bound), "collection", prefixes, self._creators(bound)))
                for bound in seen
            ]
            return Reply(msgspec.json.encode(ConsoleCollectionsAnswer(collections=rows)))

        return await self._context.work(look)

    async def collection(self, call: Call) -> Reply:
        """GET /console/api/collection"""
        bound = self._bound(call)
        logs, prefixes = await self._catalogue.table(), call.access.prefixes

        def look() -> Reply:
            row = row_of(bound, logs.sums(start_of(bound), "collection", prefixes, self._creators(bound)))
            answer = ConsoleCollectionAnswer(
                **msgspec.structs.asdict(row),
                config=msgspec.to_builtins(bound.collection),
                permissions=[
                    FieldPermissionRow(
                        field=field, read_roles=list(rule.read_roles), write_roles=list(rule.write_roles)
                    )
                    for field, rule in bound.collection.field_permissions.items()
                ],
                events=None if bound.collection.queue is None else bound.collection.queue.topic or row.name,
            )
            return Reply(msgspec.json.encode(answer))

        return await self._context.work(look)

    async def documents(self, call: Call) -> Reply:
        """GET /console/api/documents"""
        bound = self._bound(call)
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        prefix, after = call.query.get("prefix", ""), call.query.get("after", "")
        common = start_of(bound)
        start = prefix if prefix.startswith(common) else common
        if not start.startswith(prefix):
            return Reply(msgspec.json.encode(DocumentsAnswer(documents=[], next=None)))

        def look() -> Reply:
            found: list[DocumentRow] = []
            last, examined = after, 0
            for last in islice(self._names(start, after, call.access), MAX_EXAMINED):
                examined += 1
                log = self._document(bound, last)
                if log is not None:
                    found.append(document_row(log))
                    if len(found) == limit:
                        break
            more = len(found) == limit or examined == MAX_EXAMINED
            return Reply(msgspec.json.encode(DocumentsAnswer(documents=found, next=last if more else None)))

        return await self._context.work(look)

    def _names(self, start: str, after: str, access: Access) -> Iterator[str]:
        return self._context.kernel.catalog.walk(access, prefix=start, after=after)

    def _document(self, bound: BoundCollection, name: str) -> Log | None:
        """The log of this name, if it is a document of the collection."""
        params = bound.path.match(name.split("/"))
        if params is None or not values_fit(params):
            return None
        log = self._context.engine.find(name)
        if log is None or COLLECTION not in log.notes or not log.head:
            return None
        return log if self._context.collections.namespaces[bound.namespace].belongs(name, bound) else None

    def _creators(self, bound: BoundCollection) -> set[str]:
        """The collections that create the documents of a collection: all that have the same path, whatever they call
        its placeholders."""
        every, shape = bound_collections(self._context.collections), shape_of(bound)
        return {each.collection.name for each in every if shape_of(each) == shape}

    def _bound(self, call: Call) -> BoundCollection:
        name, namespace = call.query.get("name", ""), call.query.get("namespace", "")
        index = self._context.collections.namespaces.get(namespace)
        bound = None if index is None else index.get(name)
        if bound is None or not may_see(bound, call.access):
            inside = f" in the namespace {namespace!r}" if namespace else ""
            message = f"the collection {name!r} does not exist{inside}, or the API key may not access it"
            raise Refusal(NOT_FOUND, message)
        return bound


def bound_collections(collections: Collections) -> list[BoundCollection]:
    return [bound for index in collections.namespaces.values() for bound in index]


def start_of(bound: BoundCollection) -> str:
    """What the paths of all documents of a collection start with: the path up to its first placeholder."""
    return bound.path.text.partition("{")[0]


def shape_of(bound: BoundCollection) -> str:
    return _PLACEHOLDER.sub("{}", bound.path.text)


def may_see(bound: BoundCollection, access: Access) -> bool:
    return access.may_touch_some(start_of(bound))


def kind_of(bound: BoundCollection) -> DocumentKind:
    rules = bound.collection.append_only
    return "regular" if rules is None else "append-only" if rules.persist else "events"


def row_of(bound: BoundCollection, sums: LogSums) -> CollectionRow:
    collection = bound.collection
    return CollectionRow(
        name=collection.name,
        namespace=bound.namespace,
        path=bound.path.text,
        kind=kind_of(bound),
        encryption=collection.encryption,
        read_roles=list(collection.read_roles),
        write_roles=list(collection.write_roles),
        durability=collection.durability,
        documents=sums.logs,
        records=sums.records,
        bytes=sums.size,
        last_ts=sums.last or None,
    )


def document_row(log: Log) -> DocumentRow:
    state = log.state()
    return DocumentRow(path=log.name, records=state.count, bytes=state.size, last_ts=state.last_ts or None)
