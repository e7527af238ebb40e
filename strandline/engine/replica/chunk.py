"""A chunk: one numbered object of a replica, and what it holds.

A chunk begins with a fixed header: its number, the term and id of its writer, its kind, the numbers of the last
``TERM`` and of the last ``STATE``, and a checksum of everything. There are four kinds. ``TERM`` says that a server has
taken over. ``JOURNAL`` has bytes of journal files. ``STATE`` names the segments and checkpoints from which, together
with the journal after them, a server can start. ``END`` says that the server has stopped and that nothing is missing.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple, TypeVar

import msgspec
import xxhash

from strandline.engine.errors import DamagedFile, UnsupportedFormat

MAGIC = b"STRANDRC"
VERSION = 1
#: magic, version, kind, number, term, writer, number of the last TERM, number of the last STATE, length of the body
_FIELDS = struct.Struct("<8sHHQQ16sQQQ")
_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size

CHUNKS = "chunks"


class ChunkKind(IntEnum):
    TERM = 1
    JOURNAL = 2
    STATE = 3
    END = 4


class Term(msgspec.Struct, frozen=True):
    """A server has taken over. From here on, chunks of earlier terms cannot be created, because this chunk has their
    next number. It is never removed."""

    #: Where clients reach the server, as host:port; empty if unknown.
    address: str
    #: By the clock of the server, for people.
    time: int
    #: The numbers of all earlier chunks of this kind. They are never removed.
    earlier: list[int] = []


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a journal file."""

    index: int
    offset: int
    data: bytes


class JournalPart(msgspec.Struct, frozen=True):
    """Consecutive bytes of the journal, which end with a whole write."""

    pieces: list[Piece]
    #: The seed of the last file, which distinguishes it from other files with the same number.
    seed: int

    @property
    def end(self) -> tuple[int, int]:
        """The last file, and where the bytes in it end."""
        last = self.pieces[-1]
        return last.index, last.offset + len(last.data)


class State(msgspec.Struct, frozen=True):
    """The files that a server starts from."""

    #: The contents of the manifest.
    manifest: bytes
    #: The objects with the manifest's checkpoints, in its order.
    checkpoints: list[str]
    #: The first chunk with bytes of a journal file from the manifest's boundary on.
    first_chunk: int
    #: The objects with the manifest's hot segments, in its order.
    segments: list[str] = []
    #: Whether the chunks before this one have the whole journal before the manifest's boundary. If they do not, the
    #: rest of it is only in the segments and checkpoints.
    has_journal: bool = False
    #: Objects of earlier states that backups need.
    kept: list[str] = []


class End(msgspec.Struct, frozen=True):
    """The server has stopped. The chunks before this one hold everything that it acknowledged."""


Content = Term | JournalPart | State | End


class Chunk(NamedTuple):
    number: int
    term: int
    #: The id of the data directory that wrote it, followed by that of the process.
    writer: bytes
    kind: ChunkKind
    #: The number of the chunk with which the term began.
    began: int
    #: The number of the last state, possibly this chunk; 0: there is none.
    state: int
    body: bytes


_Body = TypeVar("_Body", Term, JournalPart, State, End)


def chunk_name(number: int) -> str:
    return f"{CHUNKS}/{number:016d}"


def chunk_number(name: str) -> int | None:
    folder, _, number = name.rpartition("/")
    return int(number) if folder == CHUNKS and len(number) == 16 and number.isdecimal() else None


def kind_of(content: Content) -> ChunkKind:
    return ChunkKind[type(content).__name__.removesuffix("Part").upper()]


def encode_chunk(number: int, term: int, writer: bytes, content: Content, *, began: int, state: int) -> bytes:
    body = msgspec.msgpack.encode(content)
    fields = _FIELDS.pack(MAGIC, VERSION, kind_of(content), number, term, writer, began, state, len(body))
    digest = xxhash.xxh3_64(fields)
    digest.update(body)
    return b"".join((fields, _CHECKSUM.pack(digest.intdigest()), body))


def decode_chunk(place: str, number: int, raw: bytes) -> Chunk:
    if len(raw) < HEADER_BYTES:
        raise DamagedFile(place, f"it has {len(raw)} bytes; a chunk has at least {HEADER_BYTES}")
    magic, version, kind, found, term, writer, began, state, length = _FIELDS.unpack_from(raw)
    if magic != MAGIC:
        raise DamagedFile(place, "it is not a chunk of a replica")
    if version != VERSION:
        raise UnsupportedFormat(place, version, VERSION)
    body = raw[HEADER_BYTES:]
    digest = xxhash.xxh3_64(raw[: _FIELDS.size])
    digest.update(body)
    if len(body) != length or _CHECKSUM.unpack_from(raw, _FIELDS.size)[0] != digest.intdigest():
        raise DamagedFile(place, "its checksum does not match")
    if found != number:
        raise DamagedFile(place, f"its header has the number {found}")
    if kind not in iter(ChunkKind):
        raise DamagedFile(place, f"its header has the unknown kind {kind}")
    return Chunk(number, term, writer, ChunkKind(kind), began, state, body)


def content_of(chunk: Chunk, type: type[_Body]) -> _Body:
    try:
        return msgspec.msgpack.decode(chunk.body, type=type)
    except msgspec.MsgspecError as error:
        raise DamagedFile(chunk_name(chunk.number), str(error)) from error
