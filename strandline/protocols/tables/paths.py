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
READS = ("list", "listAfter", "read", "search", "indexed", "counts", "history", "live")
#: The operations that only tables with soft delete have.
RESTORING = ("restoreByParent", "restore")

#: Every other path, which is answered with an error of this protocol.
ANY_WRITE, ANY_READ = "/tables/{table}/{operation}", "/tables/{table}/{variant}/{operation}"


def write_path(table: str, op: str) -> str:
    return f"/tables/{table}/{op}"


def read_path(table: str, variant: str, op: str) -> str:
    return f"/tables/{table}/{variant}/{op}"


def writes_of(table: TableDeclaration) -> Iterator[str]:
    for op in WRITES:
        if table.soft_delete or op not in RESTORING:
            yield op


def reads_of(table: TableDeclaration) -> Iterator[tuple[str, str]]:
    """Variant and operation."""
    for variant in (AUTH, PUB) if table.public else (AUTH,):
        for op in READS:
            if op != "search" or table.search_fields:
                yield variant, op
