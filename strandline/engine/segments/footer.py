"""The footer of a segment file, and how to find it before any byte of the file is trusted.

A segment is an Arrow IPC file::

    ARROW1 0 0 | schema | dictionaries | block | block | ... | end mark | Arrow footer | length i32 | ARROW1
    `-------------- head --------------'                       `------------------ tail ------------------'

The Arrow footer has one entry of custom metadata, ``strandline``, with the text::

    strandline-footer:<XXH3 of the msgpack, 16 hex digits>:<msgpack of a footer, in base64>

The entry is text because Arrow stores metadata as strings, and readers in other languages reject a file whose strings
are not UTF-8. The leading mark makes it possible to find, check and decode the entry with plain byte operations: Arrow
parses a file only after the checksums of head and tail were verified.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from typing import NamedTuple

import msgspec
import xxhash

from strandline.engine.errors import DamagedFile, UnsupportedFormat

VERSION = 1

ARROW_MAGIC = b"ARROW1"
#: Every Arrow file ends with the length of its footer and the magic number.
ENDING = struct.Struct("<i6s")
#: The bytes that Arrow writes between the last block and the footer.
END_MARK_BYTES = 8

METADATA_KEY = b"strandline"
_MARK = b"strandline-footer:"
_SUM_DIGITS = 16
_TEXT_FROM = len(_MARK) + _SUM_DIGITS + 1

#: row, rows, offset, end, size, sum. The width is fixed because Arrow needs the metadata, and thus the length of the
#: footer, before the blocks are written, while the positions and checksums are known only afterwards.
_BLOCK = struct.Struct("<qqqqqQ")


class RunInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The consecutive rows of one log in one segment. ``size`` is the size of data and metas.

    The keys are the lowest and the highest in UTF-8 byte order, or None if no row of the run has a key.
    """

    epoch: int
    name: str
    first: int
    last: int
    row: int
    rows: int
    size: int
    ts_first: int
    ts_last: int
    key_first: str | None = None
    key_last: str | None = None


class BlockInfo(NamedTuple):
    """One record batch: its rows, its bytes in the file and their XXH3. ``size`` is the size of data and metas."""

    row: int
    rows: int
    offset: int
    end: int
    sum: int
    size: int


class Footer(NamedTuple):
    id: int
    rows: int
    runs: list[RunInfo]
    blocks: list[BlockInfo]


class SegmentInfo(msgspec.Struct, array_like=True, frozen=True):
    """The manifest's description of a segment: enough to verify every byte of the file before it is used.

    ``edges`` is the XXH3 over all bytes outside of blocks, which include the checksum of each block.
    """

    id: int
    size: int
    edges: int
    rows: int
    runs: list[RunInfo]


class _Packed(msgspec.Struct, array_like=True):
    version: int
    id: int
    rows: int
    runs: list[RunInfo]
    blocks: bytes


class _Version(msgspec.Struct, array_like=True):
    """Decodes the version of a footer, whatever fields follow."""

    version: int


def encode_footer(footer: Footer) -> bytes:
    """Encode the metadata text. Its length depends only on the runs and on the *number* of blocks."""
    blocks = b"".join(
        [_BLOCK.pack(row, rows, offset, end, size, sum) for row, rows, offset, end, sum, size in footer.blocks]
    )
    packed = msgspec.msgpack.encode(_Packed(VERSION, footer.id, footer.rows, footer.runs, blocks))
    return b"%b%016x:%b" % (_MARK, xxhash.xxh3_64_intdigest(packed), b64encode(packed))


def find_footer(tail: bytes) -> tuple[int, int]:
    """Return the start and end of the metadata text in a tail; (-1, -1) if there is none."""
    start = tail.find(_MARK)
    end = tail.find(b"\0", start)
    return (start, end) if 0 <= start < end else (-1, -1)


def decode_footer(path: str, tail: bytes) -> Footer:
    start, end = find_footer(tail)
    text = tail[start:end]
    if start < 0 or len(text) < _TEXT_FROM:
        raise DamagedFile(path, "it has no Strandline footer")
    try:
        expected = int(text[len(_MARK) : len(_MARK) + _SUM_DIGITS], 16)
        packed = b64decode(text[_TEXT_FROM:], validate=True)
    except ValueError:
        raise DamagedFile(path, "its footer is not readable") from None
    if xxhash.xxh3_64_intdigest(packed) != expected:
        raise DamagedFile(path, "the checksum of its footer does not match")
    try:
        version = msgspec.msgpack.decode(packed, type=_Version).version
        if version != VERSION:
            raise UnsupportedFormat(path, version, VERSION)
        raw = msgspec.msgpack.decode(packed, type=_Packed)
        blocks = [
            BlockInfo(row, rows, offset, end, sum, size)
            for row, rows, offset, end, size, sum in _BLOCK.iter_unpack(raw.blocks)
        ]
    except (msgspec.MsgspecError, struct.error) as error:
        raise DamagedFile(path, f"its footer cannot be decoded ({error})") from None
    if not blocks or not raw.runs or raw.rows != sum(block.rows for block in blocks):
        raise DamagedFile(path, "its footer is inconsistent")
    return Footer(raw.id, raw.rows, raw.runs, blocks)


def tail_start(path: str, size: int, ending: bytes) -> int:
    """Return the start of the tail of a file of ``size`` bytes, from its last ``ENDING.size`` bytes."""
    if len(ending) != ENDING.size:
        raise DamagedFile(path, f"it has {size} bytes, too few for a segment")
    length, magic = ENDING.unpack(ending)
    if magic != ARROW_MAGIC:
        raise DamagedFile(path, "it does not end like an Arrow file")
    start: int = size - ENDING.size - length - END_MARK_BYTES
    if length <= 0 or start < len(ARROW_MAGIC):
        raise DamagedFile(path, "the length of its Arrow footer is invalid")
    return start


def read_footer(path: str, raw: bytes | memoryview) -> Footer:
    """Return the footer of a segment file in memory, for tools that have no manifest to check it against."""
    start = tail_start(path, len(raw), bytes(raw[-ENDING.size :]))
    return decode_footer(path, bytes(raw[start:]))


def describe(path: str, raw: bytes | memoryview) -> SegmentInfo:
    """Describe a segment file as a manifest does, from the file itself."""
    footer = read_footer(path, raw)
    start, head_end = tail_start(path, len(raw), bytes(raw[-ENDING.size :])), footer.blocks[0].offset
    return SegmentInfo(footer.id, len(raw), edges_sum(raw[:head_end], raw[start:]), footer.rows, footer.runs)


def edges_sum(head: bytes | memoryview, tail: bytes | memoryview) -> int:
    hasher = xxhash.xxh3_64(head)
    hasher.update(tail)
    return hasher.intdigest()
