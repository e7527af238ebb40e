"""The journal frame, byte by byte: the only binary format that is encoded by hand.

All numbers are little-endian. A file starts with a 48-byte header, and frames follow back to back::

    file header   magic 8s | version u32 | kind u32 | index u64 | seed u64 | boot 8s | checksum u64   (48 bytes)
    frame header  mark u32 | length u32 | checksum u64 | type u8 | flags u8 | place u16 | count u32
                  | epoch u64 | first u64 | ts u64 | reserved u64                        (56 bytes)
    append body   offsets u32 x (count + 1) | [keys] | [nodes] | [metas] | [time u64] | [extras] | payloads
    keys, nodes   lengths u16 x count (0xFFFF: none) | text
    metas         lengths u32 x count (0xFFFFFFFF: none) | bytes
    time          the time of the records, if it differs from the frame's
    extras        length u32 | msgpack
    other bodies  msgpack, see ``bodies``

``length`` is the length of the whole frame, ``ts`` the time of writing. The checksum is XXH3 over everything after it,
seeded with the file's random seed plus the frame's offset. Bytes from another file or another offset, or a payload that
looks like a frame, therefore never pass as a frame.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

import msgspec
import xxhash

from strandline.engine.disk import PIECE_BYTES
from strandline.engine.errors import DamagedFile, UnsupportedFormat
from strandline.engine.journal.bodies import Extras, pack, unpack
from strandline.engine.state.block import Block

if sys.byteorder != "little":  # pragma: no cover - columns are written in memory order
    raise ImportError("strandline needs a little-endian machine")

MAGIC = b"STRANDLN"
VERSION = 1
MARK = 0xA15EA5ED
MARK_BYTES = struct.pack("<I", MARK)

FILE_HEADER = struct.Struct("<8sIIQQ8sQ")
HEADER = struct.Struct("<IIQBBHIQQQQ")
#: The checksum covers the frame from here on.
COVERED_FROM = 16
_COVERED = struct.Struct("<BBHIQQQQ")
_FRONT = struct.Struct("<IIQ")
_FRONT_AND_TYPE = struct.Struct("<IIQB")
_digest = xxhash.xxh3_64_intdigest

#: Smaller payloads are copied into the frame, which is cheaper than another piece.
SMALL_DATA = 4096

NO_STRING = 0xFFFF
NO_BYTES = 0xFFFFFFFF

HAS_KEYS = 1
HAS_NODES = 2
HAS_METAS = 4
HAS_EXTRAS = 8
#: The next frame belongs to the same write: all frames of a write count, or none. ``place`` numbers them from 0.
MORE = 16
MAX_GROUP = 1 << 16
HAS_TIME = 32


class FileKind(IntEnum):
    JOURNAL = 1
    CHECKPOINT = 2


class FrameType(IntEnum):
    APPEND = 1
    CONFIGURE = 2
    DROP = 3
    DELETE = 4
    AMEND = 5
    HIDE = 6
    RESTORE = 7
    #: Max age moved a log's floor. Max records and max bytes need no frame: replaying the appends evicts the same
    #: records. Only an ephemeral log that still has older, durable records writes frames for both.
    FLOOR = 8
    #: The highest seq that may have been assigned (see ``reserved``), if no append carries it.
    RESERVE = 9
    #: Assigned seqs without a record. Readers get a tombstone for them.
    GAP = 10
    #: The last frame of a clean shutdown.
    CLOSE = 11
    #: The state of one log: in a checkpoint, and in the journal when an ephemeral log becomes durable.
    STATE = 12
    #: Changes to the sealed records of one log in one segment, in a checkpoint.
    OVERLAY = 13
    #: The manifest that the checkpoint was written for, so that a lost manifest can be rebuilt.
    MANIFEST = 14
    #: A cursor was moved or dropped.
    CURSOR = 15
    #: Records of one log were copied to others, and cursors moved. Refers to appends in the same file.
    FORWARD = 16
    #: Notes of a log were changed without an append. The body is the extras of an append.
    NOTE = 17


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame as read from a file. ``body`` is everything after the header."""

    type: FrameType
    flags: int
    count: int
    epoch: int
    first: int
    ts: int
    reserved: int
    body: bytes
    offset: int
    length: int
    #: The number of the frame within its write. Only a write of several frames has numbers above 0.
    place: int = 0


class FrameDamage(NamedTuple):
    """A range of bytes in a file that is not a valid frame."""

    offset: int
    length: int
    why: str


def file_header(kind: FileKind, index: int, seed: int, boot: bytes = b"") -> bytes:
    """Return a file header. ``boot`` identifies the boot of the machine: see ``Disk.boot_id``."""
    header = FILE_HEADER.pack(MAGIC, VERSION, kind, index, seed, boot, 0)[:-8]
    return header + xxhash.xxh3_64_intdigest(header).to_bytes(8, "little")


def read_file_header(path: str, raw: bytes, kind: FileKind) -> tuple[int, int]:
    """Return the index and seed of a file, or raise an exception that says what is wrong with its header."""
    if len(raw) < FILE_HEADER.size:
        raise DamagedFile(path, f"its header has {len(raw)} of {FILE_HEADER.size} bytes")
    magic, version, found, index, seed, _, checksum = FILE_HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise DamagedFile(path, "it does not start with the magic number of a Strandline file")
    if version != VERSION:
        raise UnsupportedFormat(path, version, VERSION)
    # With a wrong seed every frame would look damaged, and a whole file like a torn end.
    if xxhash.xxh3_64_intdigest(raw[: FILE_HEADER.size - 8]) != checksum:
        raise DamagedFile(path, "the checksum of its header does not match")
    if found != kind:
        raise DamagedFile(path, f"it is a file of kind {found}, not {kind.name.lower()}")
    return index, seed


def read_boot(raw: bytes) -> bytes:
    boot: bytes = FILE_HEADER.unpack_from(raw)[5]
    return boot


class Encoded(NamedTuple):
    """A frame without its offset: ``seal`` adds mark, length and checksum once the offset is known."""

    parts: list[bytes]
    length: int

    def seal(self, seed: int, offset: int) -> list[bytes]:
        parts = self.parts
        if len(parts) == 1:
            checksum = _digest(parts[0], (seed + offset) & 0xFFFFFFFFFFFFFFFF)
            return [_FRONT.pack(MARK, self.length, checksum), parts[0]]
        hasher = xxhash.xxh3_64(seed=(seed + offset) & 0xFFFFFFFFFFFFFFFF)
        for part in parts:
            hasher.update(part)
        return [_FRONT.pack(MARK, self.length, hasher.intdigest()), *parts]


def encode(
    type: FrameType, epoch: int, first: int, ts: int, body: bytes = b"", *, count: int = 0, reserved: int = 0
) -> Encoded:
    covered = _COVERED.pack(type, 0, 0, count, epoch, first, ts, reserved) + body
    return Encoded([covered], COVERED_FROM + len(covered))


def group(frames: list[Encoded]) -> list[Encoded]:
    """Mark frames as one write: after a crash, all of them exist or none."""
    if len(frames) == 1:
        return frames
    last = len(frames) - 1
    return [_in_group(frame, place, place < last) for place, frame in enumerate(frames)]


def _in_group(frame: Encoded, place: int, more: bool) -> Encoded:
    front = bytearray(frame.parts[0])
    if more:
        front[1] |= MORE
    front[2:4] = place.to_bytes(2, "little")
    return Encoded([bytes(front), *frame.parts[1:]], frame.length)


def encode_append(epoch: int, block: Block, ts: int, reserved: int, extras: Extras | None) -> Encoded:
    """Encode an append. ``ts`` is the time of writing; the records of the block share their own time."""
    flags = 0
    columns = [block.offsets.tobytes()]
    if block.keys is not None:
        flags |= HAS_KEYS
        columns.append(_pack_strings(block.keys))
    if block.nodes is not None:
        flags |= HAS_NODES
        columns.append(_pack_strings(block.nodes))
    if block.metas is not None:
        flags |= HAS_METAS
        columns.append(_pack_bytes(block.metas))
    if block.ts != ts:
        flags |= HAS_TIME
        columns.append(block.timestamp(0).to_bytes(8, "little"))
    if extras is not None:
        flags |= HAS_EXTRAS
        packed = pack(extras)
        columns.append(len(packed).to_bytes(4, "little") + packed)
    covered = _COVERED.pack(FrameType.APPEND, flags, 0, len(block), epoch, block.first, ts, reserved)
    data = block.data
    if len(data) < SMALL_DATA:
        body = b"".join((covered, *columns, data))
        return Encoded([body], COVERED_FROM + len(body))
    front = b"".join((covered, *columns))
    return Encoded([front, data], COVERED_FROM + len(front) + len(data))


def decode_append(frame: Frame) -> tuple[Block, Extras | None]:
    """Return the records of an append frame. Its checksum was verified, so its structure is valid."""
    body, count, at = frame.body, frame.count, 4 * (frame.count + 1)
    offsets = array("I")
    offsets.frombytes(body[:at])
    keys = nodes = metas = extras = None
    ts = frame.ts
    if frame.flags & HAS_KEYS:
        keys, at = _unpack_strings(body, at, count)
    if frame.flags & HAS_NODES:
        nodes, at = _unpack_strings(body, at, count)
    if frame.flags & HAS_METAS:
        metas, at = _unpack_bytes(body, at, count)
    if frame.flags & HAS_TIME:
        ts = int.from_bytes(body[at : at + 8], "little")
        at += 8
    if frame.flags & HAS_EXTRAS:
        end = at + 4 + int.from_bytes(body[at : at + 4], "little")
        extras = unpack(body[at + 4 : end], Extras)
        at = end
    return Block(frame.first, frame.first + count - 1, ts, offsets, body[at:], keys, nodes, metas), extras


class VerifiedFrames(NamedTuple):
    """Consecutive verified frames. ``raw`` was read from the file at ``base``; the frames start at ``places`` in it."""

    raw: bytes
    base: int
    places: list[int]

    def frames(self) -> Iterator[Frame]:
        for place in self.places:
            yield frame_in(self.raw, place, self.base + place)


class FrameReader:
    """Reads the frames of a file piece by piece, so that memory holds one piece instead of the file.

    ``read`` returns the bytes from an offset; fewer bytes than requested mean the end of the file. ``size`` is where to
    stop.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int, seed: int) -> None:
        self._source = read
        self._size = size
        self._seed = seed
        self._raw = b""
        self._base = 0

    def extend(self, size: int) -> None:
        """Read up to ``size`` from now on: the file has grown."""
        self._size = size

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, from memory if they are in the current piece."""
        start = offset - self._base
        if start >= 0 and start + size <= len(self._raw):
            return self._raw[start : start + size]
        return self._source(offset, size)

    def frames(self, offset: int = FILE_HEADER.size) -> Iterator[Frame | FrameDamage]:
        for item in self.stretches(offset):
            if isinstance(item, VerifiedFrames):
                yield from item.frames()
            else:
                yield item

    def stretches(self, offset: int = FILE_HEADER.size) -> Iterator[VerifiedFrames | FrameDamage]:
        """Yield every valid frame from ``offset`` on, and every damaged range between them.

        After a damaged frame the search continues at the next mark, so later frames are not lost.
        """
        while offset < self._size:
            if not self._base <= offset < self._base + len(self._raw):
                self._load(offset)
                continue
            places, end, why = self._verify(offset)
            if places:
                yield VerifiedFrames(self._raw, self._base, places)
                offset = end
            elif why:
                start, offset = offset, self._next_frame(offset + 1)
                yield FrameDamage(start, offset - start, why)
            elif offset > self._base:
                # The piece ends within this frame, so the next piece starts with it.
                self._load(offset)
            else:
                length, why = self._check(offset)
                if why:
                    start, offset = offset, self._next_frame(offset + 1)
                    yield FrameDamage(start, offset - start, why)
                else:
                    yield VerifiedFrames(self._source(offset, length), offset, [0])
                    offset += length

    def _load(self, offset: int) -> None:
        self._raw = b""  # hold one piece at a time
        wanted = min(PIECE_BYTES, self._size - offset)
        self._raw, self._base = self._source(offset, wanted), offset
        if len(self._raw) < wanted:
            self._size = offset + len(self._raw)

    def _verify(self, offset: int) -> tuple[list[int], int, str]:
        """Return the places of the valid frames in the current piece from ``offset`` on, where they end, and what is
        wrong there. The reason is empty if the piece ends within the next frame."""
        raw, base, size = self._raw, self._base, self._size
        view, end, unpack_front = memoryview(raw), len(raw), _FRONT_AND_TYPE.unpack_from
        # The seed of a frame's checksum is the file's seed plus the frame's offset in the file.
        seed, types, digest = self._seed + base, _TYPES, _digest
        at, header = offset - base, HEADER.size
        places: list[int] = []
        while at + header <= end:
            mark, length, checksum, kind = unpack_front(raw, at)
            until = at + length
            if mark != MARK:
                return places, base + at, "no frame found here"
            if length < header or base + until > size:
                return places, base + at, "the frame is cut off or its length is wrong"
            if until > end:
                return places, base + at, ""
            if digest(view[at + COVERED_FROM : until], (seed + at) & 0xFFFFFFFFFFFFFFFF) != checksum:
                return places, base + at, "the frame's checksum does not match"
            if kind not in types:
                return places, base + at, f"frame type {kind} is not supported by this release"
            places.append(at)
            at = until
        cut_off = at < end and base + end >= size
        return places, base + at, "the frame's header is cut off" if cut_off else ""

    def _check(self, offset: int) -> tuple[int, str]:
        """Return the length of the frame at an offset, and what is wrong with it. The frame may be larger than a
        piece."""
        if self._size - offset < HEADER.size:
            return 0, "the frame's header is cut off"
        mark, length, checksum, kind = _FRONT_AND_TYPE.unpack_from(self.read(offset, HEADER.size))
        if mark != MARK:
            return 0, "no frame found here"
        if length < HEADER.size or offset + length > self._size:
            return 0, "the frame is cut off or its length is wrong"
        hasher = xxhash.xxh3_64(seed=(self._seed + offset) & 0xFFFFFFFFFFFFFFFF)
        for at in range(offset + COVERED_FROM, offset + length, PIECE_BYTES):
            hasher.update(self.read(at, min(PIECE_BYTES, offset + length - at)))
        if hasher.intdigest() != checksum:
            return 0, "the frame's checksum does not match"
        if kind not in _TYPES:
            return 0, f"frame type {kind} is not supported by this release"
        return length, ""

    def _next_frame(self, offset: int) -> int:
        """Return where the next valid frame starts at or after an offset, or the end of the file if there is none."""
        while self._size - offset >= HEADER.size:
            if not self._base <= offset < self._base + len(self._raw) - len(MARK_BYTES):
                self._load(offset)
            raw, base = self._raw, self._base
            place = raw.find(MARK_BYTES, offset - base)
            while place >= 0:
                if not self._check(base + place)[1]:
                    return base + place
                place = raw.find(MARK_BYTES, place + 1)
            # A mark may span the end of the piece.
            offset = base + len(raw) - len(MARK_BYTES) + 1
        return self._size


def scan(raw: bytes, seed: int, offset: int) -> Iterator[Frame | FrameDamage]:
    """Yield the frames of a file that is in memory: see :meth:`FrameReader.stretches`."""
    return FrameReader(lambda start, size: raw[start : start + size], len(raw), seed).frames(offset)


def frame_in(raw: bytes, place: int, offset: int) -> Frame:
    """Return the verified frame at ``place`` in ``raw``. ``offset`` is its offset in the file."""
    _, length, _, kind, flags, number, count, epoch, first, ts, reserved = HEADER.unpack_from(raw, place)
    body = raw[place + HEADER.size : place + length]
    return Frame(_TYPES[kind], flags, count, epoch, first, ts, reserved, body, offset, length, number)


_TYPES = {int(member): member for member in FrameType}


def _pack_strings(values: Sequence[str | None]) -> bytes:
    if len(values) == 1 and values[0] is not None:
        text = values[0].encode()
        return len(text).to_bytes(2, "little") + text
    try:
        whole = "".join(values)  # type: ignore[arg-type]
    except TypeError:
        pass  # One of them is None.
    else:
        if whole.isascii():
            # The usual case: encode them all at once.
            return array("H", map(len, values)).tobytes() + whole.encode()  # type: ignore[arg-type]
    encoded = [None if value is None else value.encode() for value in values]
    lengths = array("H", [NO_STRING if value is None else len(value) for value in encoded])
    return lengths.tobytes() + b"".join([value for value in encoded if value is not None])


def _unpack_strings(body: bytes, at: int, count: int) -> tuple[list[str | None], int]:
    lengths = array("H")
    lengths.frombytes(body[at : at + 2 * count])
    at += 2 * count
    values: list[str | None] = []
    for length in lengths:
        if length == NO_STRING:
            values.append(None)
        else:
            values.append(body[at : at + length].decode())
            at += length
    return values, at


def _pack_bytes(values: Sequence[bytes | None]) -> bytes:
    lengths = array("I", [NO_BYTES if value is None else len(value) for value in values])
    return lengths.tobytes() + b"".join([value for value in values if value is not None])


def _unpack_bytes(body: bytes, at: int, count: int) -> tuple[list[bytes | None], int]:
    lengths = array("I")
    lengths.frombytes(body[at : at + 4 * count])
    at += 4 * count
    values: list[bytes | None] = []
    for length in lengths:
        if length == NO_BYTES:
            values.append(None)
        else:
            values.append(body[at : at + length])
            at += length
    return values, at


T = TypeVar("T")


class IncompleteWrite(NamedTuple):
    """A valid frame that does not count, because other frames of its write are unreadable."""

    frame: Frame

    def place_and_reason(self) -> tuple[int, int, str]:
        """Return offset, length and reason, as for damage."""
        return self.frame.offset, self.frame.length, "the rest of its write is unreadable"


def whole_writes(items: Iterable[Frame | FrameDamage | T]) -> Iterator[Frame | FrameDamage | IncompleteWrite | T]:
    """Yield the frames that count, in order, and between them the frames and damage that do not count.

    A write to several logs is several consecutive frames; all but the last have the flag MORE. If one of them is torn
    or damaged, none of them counts. An item of another type stands for complete writes and passes unchanged.
    """
    waiting: list[Frame] = []
    for item in items:
        if isinstance(item, Frame) and item.place == len(waiting):
            if item.flags & MORE:
                waiting.append(item)
                continue
            if waiting:
                yield from waiting
                waiting = []
            yield item
            continue
        yield from map(IncompleteWrite, waiting)
        waiting = []
        if not isinstance(item, Frame):
            yield item
        elif item.place:
            yield IncompleteWrite(item)
        elif item.flags & MORE:
            waiting.append(item)
        else:
            yield item
    yield from map(IncompleteWrite, waiting)
