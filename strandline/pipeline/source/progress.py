"""Determines which rows of a micro-batch are appended already.

Spark runs a batch again when it does not know that it was done: the driver died, or the checkpoint is older than what
happened. So each append also stores its progress in the log, in the same step: the query, the batch, and the number of
rows. A repeated batch finds this note and continues after it.

To Spark, a query with a lost checkpoint is another query that starts from the beginning. If the rows state where they
come from (``source``, ``position``), rows that were appended before are recognised by their positions and skipped. If
they do not, or if positions did not ascend, the batch is refused, because duplicates cannot be recognised.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from strandline.pipeline.source.frames import BadFrame

#: The limits of an append. A batch within them is one append to each log, so it is in a log completely or not at all.
MAX_APPEND_BYTES = 64 << 20
MAX_APPEND_ROWS = 1 << 18


class LostCheckpoint(Exception):
    """It is unknown which of these rows were appended before. The message says what to do."""


class NotedProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a query, stored in the log that it writes to.

    ``rows`` is the number of processed rows of the batch, ``whole`` whether that is all of them. ``digest`` is the
    digest of these rows if they have no positions. ``positions`` has the position in each source; ``ordered``:
    positions never decreased. ``behind`` has the positions that an earlier query had reached when this one started.
    """

    query: str
    batch: int
    rows: int = 0
    whole: bool = True
    digest: str = ""
    ordered: bool = True
    positions: dict[str, int] = {}
    behind: dict[str, int] = {}

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of(cls, document: dict[str, Any] | None) -> NotedProgress | None:
        return None if document is None else msgspec.convert(document, cls)


#: What is known of every row of a batch, wherever its payload is. ``size`` is the length of the payload.
MARKS = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("digest", pa.binary(16)),
    ]
)


def marked(rows: Any, *, positions: bool) -> Any:
    """The marks of rows. Rows with positions are recognised by them and need no digest."""
    data = rows.column("data")
    digests = None if positions else [xxh3_128_digest(value) for value in data.to_pylist()]
    columns = {
        "source": rows.column("source"),
        "position": rows.column("position"),
        "size": pc.binary_length(data).cast(pa.int64()),
        "digest": pa.nulls(rows.num_rows, pa.binary(16)) if digests is None else pa.array(digests, pa.binary(16)),
    }
    return pa.table([columns[name] for name in MARKS.names], schema=MARKS)


class WriteStep(msgspec.Struct):
    """An append: rows, and the progress to store with them."""

    rows: Any
    noted: NotedProgress


def in_order(rows: Any) -> Any:
    """Rows sorted by source and position, so that the position in each source is known after every append."""
    return rows.take(pc.sort_indices(rows, [("source", "ascending"), ("position", "ascending")]))


def steps(
    rows: Any,
    noted: NotedProgress | None,
    query: str,
    batch: int,
    *,
    positions: bool,
    log: str,
    writer: str,
    max_rows: int = MAX_APPEND_ROWS,
) -> Iterator[WriteStep]:
    """The remaining appends of a batch's rows for one log. Rows have the columns of ``MARKS``, and any others. Rows
    with positions must be ``in_order``.

    Raises LostCheckpoint before the first append.
    """
    begun, start = _resume(noted, query, batch, rows, positions=positions, log=log, writer=writer)
    if start >= rows.num_rows:
        return iter(())
    return _steps(rows, begun, start, positions, max_rows)


def _resume(
    noted: NotedProgress | None, query: str, batch: int, rows: Any, *, positions: bool, log: str, writer: str
) -> tuple[NotedProgress, int]:
    """The progress before the first append, and its first row."""
    if noted is None:
        return NotedProgress(query, batch), 0
    if noted.query == query and batch > noted.batch:
        return msgspec.structs.replace(noted, batch=batch, rows=0, whole=False, digest=""), 0
    if noted.query == query and batch == noted.batch:
        if noted.whole:
            return noted, rows.num_rows
        if not positions and digest_of(rows.slice(0, noted.rows)) != noted.digest:
            raise LostCheckpoint(
                f"{noted.rows} rows of batch {batch} are in log {log!r} already, but the repeated batch has different "
                "rows in their place. Add the columns source and position, make the order of rows deterministic, or "
                f"make batches small enough for one append: {MAX_APPEND_ROWS} rows and {MAX_APPEND_BYTES >> 20} MiB "
                "for each log (maxOffsetsPerTrigger, maxBytesPerTrigger)"
            )
        return noted, noted.rows
    if positions and noted.ordered and noted.positions:
        behind = {**noted.behind, **noted.positions}
        return NotedProgress(query, batch, whole=False, positions=noted.positions, behind=behind), 0
    raise LostCheckpoint(
        f"writer {writer!r} stored batch {noted.batch} of query {noted.query} in log {log!r}, but this is batch "
        f"{batch} of query {query}: the checkpoint is lost, or another query uses the same writer name. Without the "
        "columns source and position it is unknown which rows are appended already. Restore the checkpoint, set "
        "another option writer to append everything again, or delete the progress of this writer "
        "(DELETE /arrow/progress/…)"
    )


def _steps(rows: Any, noted: NotedProgress, start: int, positions: bool, max_rows: int) -> Iterator[WriteStep]:
    for first, end in _cuts(rows, start, positions, max_rows):
        part = rows.slice(first, end - first)
        behind, known = dict(noted.behind), dict(noted.positions)
        ordered = noted.ordered
        if positions:
            if noted.behind:
                part = part.filter(_ahead(part, noted.behind))
            for source, (low, high) in _spans(part).items():
                ordered = ordered and low > noted.positions.get(source, low - 1)
                known[source] = max(high, known.get(source, high))
                behind.pop(source, None)
        # A batch that is complete is never continued.
        digest = "" if positions or end == rows.num_rows else digest_of(rows.slice(0, end))
        noted = msgspec.structs.replace(
            noted, rows=end, whole=end == rows.num_rows, digest=digest, positions=known, behind=behind, ordered=ordered
        )
        if part.num_rows:
            yield WriteStep(part, noted)


def _ahead(rows: Any, behind: dict[str, int]) -> Any:
    sources, places = rows.column("source").to_pylist(), rows.column("position").to_pylist()
    return [place > behind.get(source, place - 1) for source, place in zip(sources, places, strict=True)]


def _spans(rows: Any) -> dict[str, tuple[int, int]]:
    found = rows.group_by("source").aggregate([("position", "min"), ("position", "max")])
    columns = [found.column(name).to_pylist() for name in ("source", "position_min", "position_max")]
    return {source: (low, high) for source, low, high in zip(*columns, strict=True)}


def _cuts(rows: Any, start: int, positions: bool, max_rows: int) -> Iterator[tuple[int, int]]:
    """The ranges of appends. Rows of one position stay together: half of them would look like all."""
    sizes = np.cumsum(rows.column("size").to_numpy())
    may_cut = _changes(rows) if positions else np.ones(rows.num_rows, bool)
    while start < rows.num_rows:
        before = int(sizes[start - 1]) if start else 0
        fitting = int(np.searchsorted(sizes, before + MAX_APPEND_BYTES, "right"))
        end = min(start + max_rows, max(fitting, start + 1), rows.num_rows)
        while end < rows.num_rows and end > start and not may_cut[end]:
            end -= 1
        if end == start:
            source, position = (rows.column(name)[start].as_py() for name in ("source", "position"))
            raise BadFrame(
                f"too many rows have position {position} of source {source!r}: all rows of a position form one append "
                f"of at most {max_rows} rows and {MAX_APPEND_BYTES >> 20} MiB"
            )
        yield start, end
        start = end


def _changes(rows: Any) -> Any:
    """Whether a row has another source or position than the previous one."""
    places = rows.column("position").to_numpy()
    sources = rows.column("source").combine_chunks().dictionary_encode()
    if hasattr(sources, "combine_chunks"):
        sources = sources.combine_chunks()
    numbers = sources.indices.to_numpy()
    found = np.ones(rows.num_rows, bool)
    found[1:] = (places[1:] != places[:-1]) | (numbers[1:] != numbers[:-1])
    return found


def digest_of(rows: Any) -> str:
    """A digest of the payloads in order."""
    return sha256(b"".join(rows.column("digest").to_pylist())).hexdigest()[:32]
