"""Compression in bounded time and memory: zstd, brotli and gzip for answers, gzip and deflate for bodies of requests.

Small bodies are handled on the event loop, larger ones and streams on worker threads: the libraries release the
interpreter lock while they work, so other requests are served meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from strandline.arrow import pa
from strandline.late_import import is_loaded
from strandline.service.http import StreamEncoder
from strandline.service.problems import INVALID_REQUEST, Refusal, body_too_large

ZSTD, BROTLI, GZIP = b"zstd", b"br", b"gzip"
#: The codings of replies, the preferred one first. Pages of 1000 JSON records, one processor: zstd 320 to 390 MB/s,
#: brotli 200 to 260 MB/s, gzip 80 to 95 MB/s. The first two also make the page smaller than gzip, by 11 to 16 %.
CODINGS = (ZSTD, BROTLI, GZIP)
#: The codings of streams. Arrow streams brotli only at a level that is ten times slower than gzip.
STREAM_CODINGS = (ZSTD, GZIP)
DEFLATE = b"deflate"
#: The codings of requests.
ENCODINGS = (GZIP, DEFLATE)
#: Smaller replies are not worth compressing.
MIN_COMPRESSED_BYTES = 1024
#: The fastest level that is worth it, in every coding. Higher levels take several times as long and save little on
#: JSON.
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

#: Window sizes by which zlib knows a format.
_GZIP_FORMAT, _ZLIB_FORMAT, _RAW_DEFLATE = 31, 15, -15
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


@lru_cache(maxsize=256)
def compresses(content_type: bytes) -> bool:
    """Whether content of this type is likely to shrink."""
    return not content_type.startswith(_COMPRESSED_TYPES) or content_type.startswith(b"image/svg")


def is_quick(coding: bytes) -> bool:
    """Whether the library of this coding is loaded. Loading it takes too long for the event loop."""
    return coding == GZIP or is_loaded("pyarrow")


def compress(body: bytes, coding: bytes) -> bytes | None:
    """The body in one of the codings; None if compression saves too little."""
    function = _COMPRESS[coding]
    if len(body) > SAMPLE_BYTES:
        sample = function(memoryview(body)[:SAMPLE_BYTES])
        if len(sample) > SAMPLE_BYTES * WORTHWHILE_RATIO:
            return None
    compressed = function(body)
    return compressed if len(compressed) <= len(body) * WORTHWHILE_RATIO else None


def _arrow(name: str) -> Callable[[bytes | memoryview], bytes]:
    def compress(data: bytes | memoryview) -> bytes:
        # Creating a codec takes less than a microsecond. Several threads cannot share one.
        compressed: bytes = pa.Codec(name, compression_level=LEVEL).compress(data, asbytes=True)
        return compressed

    return compress


def _gzip(data: bytes | memoryview) -> bytes:
    return zlib.compress(data, LEVEL, _GZIP_FORMAT)


_COMPRESS = {ZSTD: _arrow("zstd"), BROTLI: _arrow("brotli"), GZIP: _gzip}


class PieceEncoder(StreamEncoder):
    """Compresses a stream in one of the ``STREAM_CODINGS``. Every piece is flushed, so that its reader need not wait
    for the next one."""

    def __init__(self, coding: bytes) -> None:
        self._coding = coding

    def encoded(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        return _zstd_pieces(pieces) if self._coding == ZSTD else _gzip_pieces(pieces)


def _gzip_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
    for piece in pieces:
        compressed = compressor.compress(piece)
        del piece  # a slow reader holds only the compressed one
        yield compressed + compressor.flush(zlib.Z_SYNC_FLUSH)
    yield compressor.flush()


def _zstd_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    written = _Written()
    # Arrow's default level is LEVEL.
    with pa.CompressedOutputStream(written, "zstd") as compressor:
        for piece in pieces:
            compressor.write(piece)
            compressor.flush()
            del piece  # a slow reader holds only the compressed one
            yield written.take()
    yield written.take()


class _Written:
    """A file for Arrow that keeps the bytes which are written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return _EMPTY.join(parts)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def decompress_small(data: bytes, encoding: bytes, limit: int) -> bytes:
    """The same as ``decompress``, for small bodies on the event loop. Raises :class:`NotSmall` for larger ones."""
    if len(data) > INLINE_BYTES:
        raise NotSmall
    decompressor = zlib.decompressobj(_window(data, encoding))
    body = _inflate(decompressor, data, min(limit, INLINE_BYTES) + 1, encoding)
    if not decompressor.eof or decompressor.unused_data or len(body) > min(limit, INLINE_BYTES):
        raise NotSmall
    return body


def decompress(data: bytes, encoding: bytes, limit: int) -> bytes:
    """The content of a body in one of the ENCODINGS; gzip may have several members. Raises :class:`Refusal` if the data
    is not valid or its content exceeds ``limit`` bytes; never decompresses more than the limit."""
    window = _window(data, encoding)
    view = memoryview(data)
    pieces: list[bytes] = []
    at = size = members = 0
    while not members or at < len(view):
        members += 1
        if members > 1 and encoding == DEFLATE:
            raise _invalid("data follows the end of the compressed data", encoding)
        if members > MAX_MEMBERS:
            raise _invalid(f"more than {MAX_MEMBERS} gzip members; compress the body as a whole", encoding)
        decompressor = zlib.decompressobj(window)
        while not decompressor.eof:
            if at == len(view):
                raise _invalid("the compressed data is truncated", encoding)
            piece = view[at : at + PIECE_BYTES]
            pieces.append(_inflate(decompressor, piece, limit + 1 - size, encoding))
            size += len(pieces[-1])
            if size > limit:
                raise body_too_large(limit)
            at += len(piece) - len(decompressor.unused_data)
    return pieces[0] if len(pieces) == 1 else _EMPTY.join(pieces)


def _window(data: bytes, encoding: bytes) -> int:
    """How zlib reads the data. ``deflate`` means the zlib format, but some clients send it without the header of two
    bytes."""
    if encoding == GZIP:
        return _GZIP_FORMAT
    has_header = len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
    return _ZLIB_FORMAT if has_header else _RAW_DEFLATE


def _inflate(decompressor: zlib._Decompress, data: bytes | memoryview, most: int, encoding: bytes) -> bytes:
    try:
        return decompressor.decompress(data, most)
    except zlib.error as error:
        raise _invalid(str(error), encoding) from None


def _invalid(why: str, encoding: bytes) -> Refusal:
    return Refusal(INVALID_REQUEST, f"the body is not valid {encoding.decode()}: {why}")
