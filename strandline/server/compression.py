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
#: Bodies up to this size are compressed on the event loop, which takes about 0.2 ms. Starting the work on a thread
#: would take as long.
INLINE_BYTES = 32 << 10
#: A body that does not shrink below this share of its size is sent uncompressed.
WORTHWHILE_RATIO = 0.9
#: The bytes of a large body that are compressed first to estimate the ratio.
SAMPLE_BYTES = 16 << 10
#: Data is decompressed in pieces of this size. zlib copies the rest of a piece after the end of a gzip member, so the
#: size bounds the work per member.
PIECE_BYTES = 16 << 10
#: A gzip file may consist of several members, for example if files were concatenated. A member costs the server some
#: microseconds but the sender only 20 bytes, so their number is bounded.
MAX_MEMBERS = 1000

_GZIP = 31
_EMPTY = b""
#: Prefixes of media types whose content is already compressed.
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
    """A body is too large to decompress on the event loop."""


def compresses(content_type: bytes) -> bool:
    """Whether content of this type is likely to shrink."""
    return not content_type.startswith(_COMPRESSED_TYPES) or content_type.startswith(b"image/svg")


def compress(body: bytes) -> bytes | None:
    """The body as gzip; None if compression saves too little."""
    if len(body) > SAMPLE_BYTES:
        sample = zlib.compress(memoryview(body)[:SAMPLE_BYTES], LEVEL, _GZIP)
        if len(sample) > SAMPLE_BYTES * WORTHWHILE_RATIO:
            return None
    compressed = zlib.compress(body, LEVEL, _GZIP)
    return compressed if len(compressed) <= len(body) * WORTHWHILE_RATIO else None


def decompress_small(data: bytes, limit: int) -> bytes:
    """The same as ``decompress``, for small bodies on the event loop. Raises :class:`NotSmall` for larger ones."""
    if len(data) > INLINE_BYTES:
        raise NotSmall
    decompressor = zlib.decompressobj(_GZIP)
    body = _inflate(decompressor, data, min(limit, INLINE_BYTES) + 1)
    if not decompressor.eof or decompressor.unused_data or len(body) > min(limit, INLINE_BYTES):
        raise NotSmall
    return body


def decompress(data: bytes, limit: int) -> bytes:
    """The content of one or several gzip members. Raises :class:`Refusal` if the data is not valid gzip or its content
    exceeds ``limit`` bytes; never decompresses more than the limit."""
    view = memoryview(data)
    pieces: list[bytes] = []
    at = size = members = 0
    while not members or at < len(view):
        members += 1
        if members > MAX_MEMBERS:
            raise _invalid(f"more than {MAX_MEMBERS} gzip members; compress the body as a whole")
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
