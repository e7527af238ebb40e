"""The paths of tables: one per table, operation and, for reads, variant."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.tables import TableDeclaration

#: The variants of reads: for users who wrote a row or own its parent, and for the public.
AUTH, PUB = "auth", "pub"
#: The scope that an API key needs for each write.
WRITES = {
    "append": "write",
    "appendBulk": "write",
    "update": "write",
    "rm": "delete",
    "rmBulk": "delete",
    "purgeByParent": "delete",
    "restoreByParent": "delete",
    "restore": "delete",
}
READS = ("list", "listAfter", "read", "search", "indexed", "counts", "history", "trash", "live", "feed", "feed/live")
#: The reads that also have a path without a variant.
SHORT = ("list", "listAfter", "read", "search")
INDEXED = "indexed"
#: The operations that only tables with soft delete have.
RESTORING = ("restoreByParent", "restore")
TRASH = "trash"
#: The reads across parents, which only tables with a feed have.
FEED, FEED_LIVE = "feed", "feed/live"
#: The reads that answer with an event stream.
STREAMS = ("live", FEED_LIVE)

#: The read of the schema's versions, which has no variant.
SCHEMA = "schema"

#: The list of the declared tables.
TABLES = "/tables"
#: Every other path, which is answered with an error of this protocol.
ANY_WRITE, ANY_READ = "/tables/{table}/{operation}", "/tables/{table}/{variant}/{operation}"


def write_path(table: str, op: str) -> str:
    return f"/tables/{table}/{op}"


def read_path(table: str, variant: str, op: str) -> str:
    return f"/tables/{table}/{variant}/{op}"


def read_paths(table: TableDeclaration) -> Iterator[tuple[str, str, str]]:
    """The path, the variant and the operation of every read.

    Some reads also have a path without a variant: it leads to public reads if the table has them. Groups also have the
    paths ``authIndexed`` and ``pubIndexed``.
    """
    default = PUB if table.public else AUTH
    for variant, op in reads_of(table):
        yield read_path(table.name, variant, op), variant, op
        if variant == default and op in SHORT:
            yield f"/tables/{table.name}/{op}", variant, op
        if op == INDEXED:
            yield f"/tables/{table.name}/{variant}Indexed", variant, op


def writes_of(table: TableDeclaration) -> Iterator[str]:
    for op in WRITES:
        if table.soft_delete or op not in RESTORING:
            yield op


def reads_of(table: TableDeclaration) -> Iterator[tuple[str, str]]:
    """Variant and operation."""
    for variant in (AUTH, PUB) if table.public else (AUTH,):
        for op in READS:
            if _has(table, variant, op):
                yield variant, op


def _has(table: TableDeclaration, variant: str, op: str) -> bool:
    if op == TRASH:
        return table.soft_delete and variant == AUTH
    if op in (FEED, FEED_LIVE):
        return table.feed
    return op != "search" or bool(table.search_fields)
