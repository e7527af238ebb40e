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
#: Bodies up to this size are compressed on the event loop, in about 0.2 ms; starting a thread would take as long.
INLINE_BYTES = 32 << 10
#: A body that shrinks to no less than this share of its size is sent uncompressed.
WORTHWHILE_RATIO = 0.9
#: How much of a large body is compressed first, to see whether compression pays off.
SAMPLE_BYTES = 16 << 10
#: Compressed data is decompressed in pieces of this size. The data after the end of a gzip member is copied, so the
#: size limits the work per member.
PIECE_BYTES = 16 << 10
#: The maximum number of members of a gzip file. Programs that concatenate files produce a few. Each member takes the
#: server some microseconds and the sender only 20 bytes, so their number is limited.
MAX_MEMBERS = 1000

_GZIP = 31
_EMPTY = b""
#: Media types of compressed content, as prefixes.
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
    """A body is too large to be handled on the event loop."""


def compresses(content_type: bytes) -> bool:
    """Whether content of this type may be worth compressing."""
    return not content_type.startswith(_COMPRESSED_TYPES) or content_type.startswith(b"image/svg")


def compress(body: bytes) -> bytes | None:
    """The body as gzip; None if compression saves almost nothing."""
    if len(body) > SAMPLE_BYTES:
        sample = zlib.compress(memoryview(body)[:SAMPLE_BYTES], LEVEL, _GZIP)
        if len(sample) > SAMPLE_BYTES * WORTHWHILE_RATIO:
            return None
    compressed = zlib.compress(body, LEVEL, _GZIP)
    return compressed if len(compressed) <= len(body) * WORTHWHILE_RATIO else None


def decompress_small(data: bytes, limit: int) -> bytes:
    """Like ``decompress``; raises :class:`NotSmall` before it takes too long for the event loop."""
    if len(data) > INLINE_BYTES:
        raise NotSmall
    decompressor = zlib.decompressobj(_GZIP)
    body = _inflate(decompressor, data, min(limit, INLINE_BYTES) + 1)
    if not decompressor.eof or decompressor.unused_data or len(body) > min(limit, INLINE_BYTES):
        raise NotSmall
    return body


def decompress(data: bytes, limit: int) -> bytes:
    """Decompress one or several gzip members. Raises :class:`Refusal` if the data is not gzip or exceeds ``limit``
    bytes, without decompressing more than that."""
    view = memoryview(data)
    pieces: list[bytes] = []
    at = size = members = 0
    while not members or at < len(view):
        members += 1
        if members > MAX_MEMBERS:
            raise _invalid(f"it has more than {MAX_MEMBERS} members; compress the body as one member")
        decompressor = zlib.decompressobj(_GZIP)
        while not decompressor.eof:
            if at == len(view):
                raise _invalid("the compressed data is truncated")
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
