"""Batches of records as the bytes of an Arrow IPC stream, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.arrow import pa

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
COMPRESSIONS = ("zstd", "lz4")
#: The end of a stream: an empty message.
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def encoded(schema: Any, batches: Iterator[Any], compression: str | None = None) -> Iterator[bytes]:
    """The stream in pieces: one per batch, and one for the end. The first piece begins with the schema."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    start = 0
    for batch in batches:
        # Each batch has its own writer, since the output of a writer is available only after it is closed.
        message = _written(schema, options, batch)
        yield message.slice(start, message.size - len(END) - start).to_pybytes()
        start = _written(schema, options).size - len(END)
    yield END if start else _written(schema, options).to_pybytes()


def _written(schema: Any, options: Any, *batches: Any) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()
