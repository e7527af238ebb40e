"""gzip for the bodies of requests and replies, in bounded time and memory.

Small bodies are handled on the event loop, larger ones on worker threads: zlib releases the interpreter lock while it
works, so other requests are served meanwhile.
"""

from __future__ import annotations

import zlib

from strandline.service.problems import INVALID_REQUEST, Refusal, body_too_large

#: Smaller replies are not worth compressing.
MIN_COMPRESSED_BYTES = 1024
#: The fastest level. Higher levels take several times as long and save little on JSON.
LEVEL = 1
#: Bodies up to this size are compressed on the event loop, which takes about 0.2 ms: a thread would take as long to
#: begin.
INLINE_BYTES = 32 << 10
#: A body that shrinks to more than this share of its size is sent as it is.
WORTHWHILE_RATIO = 0.9
#: What is compressed first of a large body to see whether compressing pays.
SAMPLE_BYTES = 16 << 10
#: Compressed data is decompressed in pieces of this size. What follows the end of a gzip member is copied, so the
#: size bounds the work per member.
PIECE_BYTES = 16 << 10
#: A gzip file may consist of several members. Programs that concatenate files make a few of them; each costs the
#: server some microseconds and the sender 20 bytes, so their number is bounded.
MAX_MEMBERS = 1000

_GZIP = 31
_EMPTY = b""
#: Media types whose content is compressed already, as prefixes.
_COMPRESSED_TYPES = (
    b"image/",
    b"video/",
    b"audio/",
    b"font/woff",
    b"application/gzip",
    b"application/x-gzip",
    b"application/zip",
    b"application/zstd",
    b"application/x-bzip",
    b"application/x-xz",
    b"application/x-7z-compressed",
    b"application/vnd.rar",
    b"application/vnd.apache.parquet",
)


class NotSmall(Exception):
    """A body takes more than is done on the event loop."""


def compresses(content_type: bytes) -> bool:
    """Whether content of this type is worth a try."""
    return not content_type.startswith(_COMPRESSED_TYPES) or content_type.startswith(b"image/svg")


def compress(body: bytes) -> bytes | None:
    """The body as gzip; None if that saves next to nothing."""
    if len(body) > SAMPLE_BYTES:
        sample = zlib.compress(memoryview(body)[:SAMPLE_BYTES], LEVEL, _GZIP)
        if len(sample) > SAMPLE_BYTES * WORTHWHILE_RATIO:
            return None
    compressed = zlib.compress(body, LEVEL, _GZIP)
    return compressed if len(compressed) <= len(body) * WORTHWHILE_RATIO else None


def decompress_small(data: bytes, limit: int) -> bytes:
    """As ``decompress``; raises :class:`NotSmall` before it has done more than an event loop can spare."""
    if len(data) > INLINE_BYTES:
        raise NotSmall
    decompressor = zlib.decompressobj(_GZIP)
    body = _inflate(decompressor, data, min(limit, INLINE_BYTES) + 1)
    if not decompressor.eof or decompressor.unused_data or len(body) > min(limit, INLINE_BYTES):
        raise NotSmall
    return body


def decompress(data: bytes, limit: int) -> bytes:
    """What was compressed, in one gzip member or in several. Raises :class:`Refusal` if the data is not gzip, or is
    more than ``limit`` bytes, without decompressing more than that."""
    view = memoryview(data)
    pieces: list[bytes] = []
    at = size = members = 0
    while not members or at < len(view):
        members += 1
        if members > MAX_MEMBERS:
            raise _invalid(f"it has more than {MAX_MEMBERS} members; compress the body as a whole")
        decompressor = zlib.decompressobj(_GZIP)
        while not decompressor.eof:
            if at == len(view):
                raise _invalid("it ends before the end of the compressed data")
            piece = view[at : at + PIECE_BYTES]
            pieces.append(_inflate(decompressor, piece, limit + 1 - size))
            size += len(pieces[-1])
            if size > limit:
                raise body_too_large(limit)
            at += len(piece) - len(decompressor.unused_data)
    return pieces[0] if len(pieces) == 1 else _EMPTY.join(pieces)


def _inflate(decompressor: zlib._Decompress, data: bytes | memoryview, most: int) -> bytes:
    try:
        return decompressor.decompress(data, most)
    except zlib.error as error:
        raise _invalid(str(error)) from None


def _invalid(why: str) -> Refusal:
    return Refusal(INVALID_REQUEST, f"the body is not valid gzip: {why}")
