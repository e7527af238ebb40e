"""Checkpoint files, and the manifest that names all files of a data directory.

A checkpoint file holds frames in the journal's format: a copy of the MANIFEST that it was written for, one STATE per
log, OVERLAY frames for changes to sealed records, and DROP for dropped logs. The first file is complete; later ones
hold only changes. The manifest names the files that count and is replaced in one step. Files that it does not name are
leftovers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Literal, NamedTuple

import msgspec
import xxhash
from msgspec import Raw

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile, MissingFile, UnsupportedFormat
from strandline.engine.file_names import check_name, check_number
from strandline.engine.journal.bodies import ForkPoint, pack, unpack
from strandline.engine.journal.frame import (  # fmt: skip
    FILE_HEADER,
    Encoded,
    FileKind,
    Frame,
    FrameDamage,
    FrameType,
    encode,
    file_header,
    read_file_header,
    scan,
)
from strandline.engine.record import Config, Cursor, ProducerState, Remembered
from strandline.engine.state.forks import ForkBase
from strandline.engine.state.logbook import Gap, Logbook
from strandline.engine.state.notes import Notes
from strandline.engine.state.parts import Overlay, Run
from strandline.engine.state.ranges import SeqRanges

MANIFEST = "MANIFEST"
CHECKPOINTS = "checkpoints"
VERSION = 1


class SegmentEntry(msgspec.Struct, frozen=True):
    """The manifest's entry for a segment: enough to find the file and to verify its contents."""

    id: int
    size: int
    edges: int
    rows: int
    tier: Literal["hot", "cold"] = "hot"


class JournalEntry(msgspec.Struct, frozen=True):
    """A journal file that must exist. ``size`` is its final size, or 0 while records may still be added to it."""

    index: int
    size: int = 0


class Manifest(msgspec.Struct, kw_only=True):
    version: int = VERSION
    #: The id of the data directory. Every new or restored directory gets a new one.
    id: str = msgspec.field(default_factory=lambda: os.urandom(8).hex())
    #: The first journal file that is not covered by checkpoints and segments.
    boundary: int = 1
    #: The journal files from the boundary on, in order. A file is named after its header is durable and before a record
    #: is written to it. Directories of older releases get this list at their next start.
    journals: list[JournalEntry] = msgspec.field(default_factory=list)
    checkpoints: list[str] = msgspec.field(default_factory=list)
    #: In journal order: for every log, the runs of an earlier segment come before those of a later one.
    segments: list[SegmentEntry] = msgspec.field(default_factory=list)
    next_segment: int = 1
    next_checkpoint: int = 1
    next_epoch: int = 1
    last_ts: int = 0


def write_manifest(disk: Disk, manifest: Manifest) -> None:
    disk.write_file(MANIFEST, encode_manifest(manifest))


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    return body + f"\nxxh3 {xxhash.xxh3_64_hexdigest(body)}\n".encode()


def read_manifest(disk: Disk) -> Manifest | None:
    """Return the manifest, or None if there is none yet."""
    if not disk.exists(MANIFEST):
        return None
    return parse_manifest(disk.read(MANIFEST))


def parse_manifest(raw: bytes, path: str = MANIFEST) -> Manifest:
    body, _, sum_line = raw.rstrip(b"\n").rpartition(b"\n")
    if sum_line != f"xxh3 {xxhash.xxh3_64_hexdigest(body)}".encode():
        raise DamagedFile(path, "its checksum does not match")
    try:
        version = msgspec.json.decode(body, type=_Version).version
        if version != VERSION:
            raise UnsupportedFormat(path, version, VERSION)
        return checked(msgspec.json.decode(body, type=Manifest), path)
    except msgspec.MsgspecError as error:
        raise DamagedFile(path, str(error)) from error


def checked(manifest: Manifest, path: str) -> Manifest:
    """Return the manifest if it names only files that Strandline can have written. ``path`` is the file that contains
    it."""
    for name in manifest.checkpoints:
        check_name("checkpoint", name, path)
    for entry in manifest.segments:
        check_number("segment", entry.id, path)
    for journal in manifest.journals:
        check_number("journal file", journal.index, path)
    for what, number in (
        ("boundary", manifest.boundary),
        ("next segment", manifest.next_segment),
        ("next checkpoint", manifest.next_checkpoint),
        ("next epoch", manifest.next_epoch),
    ):
        check_number(what, number, path)
    return manifest


class _Version(msgspec.Struct):
    version: int


class RunState(msgspec.Struct, array_like=True):
    segment: int
    first: int
    last: int
    row: int
    rows: int
    live: int
    live_size: int
    ts_first: int
    ts_last: int
    key_first: str | None
    key_last: str | None

    @classmethod
    def of(cls, run: Run) -> RunState:
        return cls(
            run.segment, run.first, run.last, run.row, run.rows, run.live, run.live_size,
            run.ts_first, run.ts_last, run.key_first, run.key_last,
        )  # fmt: skip

    def make(self) -> Run:
        return Run(*msgspec.structs.astuple(self))


class BookState(msgspec.Struct, array_like=True):
    """A logbook without its records."""

    name: str
    config: Config
    assigned: int
    last_ts: int
    earliest: int
    cap_floor: int
    ttl_floor: int
    count: int
    size: int
    reserved: int
    gaps: list[Gap]
    runs: list[RunState]
    idempotency: dict[str, Remembered]
    producers: dict[str, ProducerState]
    cursors: dict[str, Cursor] = {}
    notes: dict[str, Raw] = {}
    base: ForkPoint | None = None
    #: How often records were restored or amended. Index files state the number that they were built at.
    rewrites: int = 0
    #: 0 in checkpoints of older releases; see ``recovery``.
    created_ts: int = 0

    @classmethod
    def of(cls, book: Logbook) -> BookState:
        return cls(
            name=book.name,
            config=book.config,
            assigned=book.assigned,
            last_ts=book.last_ts,
            earliest=book.earliest,
            cap_floor=book.cap_floor,
            ttl_floor=book.ttl_floor,
            count=book.count,
            size=book.size,
            reserved=book.reserved,
            gaps=list(book.gaps),
            runs=[RunState.of(run) for run in book.runs],
            idempotency=dict(book.idempotency or {}),
            producers=dict(book.producers or {}),
            cursors=dict(book.cursors or {}),
            notes={} if book.notes is None else book.notes.raw(),
            base=None if book.base is None else book.base.point,
            rewrites=book.rewrites,
            created_ts=book.created_ts,
        )

    def make(self, epoch: int) -> Logbook:
        book = Logbook(self.name, epoch, self.config, self.created_ts)
        book.base = None if self.base is None else ForkBase(self.base)
        self.put_into(book)
        book.runs = tuple(run.make() for run in self.runs)
        book.filed_in = tuple(run.segment for run in self.runs)
        return book

    def put_into(self, book: Logbook) -> None:
        """Apply this state to the book, except for its records."""
        book.assigned = book.head = self.assigned
        book.last_ts = self.last_ts
        book.earliest = self.earliest
        book.cap_floor = self.cap_floor
        book.ttl_floor = self.ttl_floor
        book.count = self.count
        book.size = self.size
        book.reserved = book.reserved_durable = self.reserved
        book.gaps = tuple(self.gaps)
        book.idempotency = self.idempotency or None
        book.producers = self.producers or None
        book.cursors = self.cursors or None
        book.notes = Notes.of(self.notes)
        book.rewrites = self.rewrites


class _StoredState(BookState):
    """A state whose configuration is not decoded yet."""

    config: Raw  # type: ignore[assignment]


class OverlayState(msgspec.Struct, array_like=True):
    segment: int
    dead: list[tuple[int, int]]
    hidden: list[tuple[int, int]]
    amended: list[tuple[int, bytes]]

    @classmethod
    def of(cls, segment: int, overlay: Overlay | None) -> OverlayState:
        if overlay is None:
            return cls(segment, [], [], [])
        return cls(segment, list(overlay.dead), list(overlay.hidden), list(overlay.amended.items()))

    def make(self) -> Overlay | None:
        if not (self.dead or self.hidden or self.amended):
            return None
        overlay = Overlay()
        overlay.dead = SeqRanges(self.dead)
        overlay.hidden = SeqRanges(self.hidden)
        overlay.amended = dict(self.amended)
        return overlay


def state_frame(epoch: int, state: BookState, ts: int | None = None) -> Encoded:
    """In a journal, ``ts`` is the time of writing, as in every frame; in a checkpoint, the time of the last record."""
    written = state.last_ts if ts is None else ts
    return encode(FrameType.STATE, epoch, 0, written, pack(state), reserved=state.reserved)


def overlay_frame(epoch: int, overlay: OverlayState) -> Encoded:
    return encode(FrameType.OVERLAY, epoch, 0, 0, pack(overlay))


def manifest_frame(manifest: Manifest) -> Encoded:
    return encode(FrameType.MANIFEST, 0, 0, manifest.last_ts, pack(manifest))


def book_frames(book: Logbook) -> Iterator[Encoded]:
    """Yield the frames of a log in a complete checkpoint. All records of the log are sealed."""
    yield state_frame(book.epoch, BookState.of(book))
    for run in book.runs:
        if run.overlay is not None:
            yield overlay_frame(book.epoch, OverlayState.of(run.segment, run.overlay))


def drop_frame(epoch: int) -> Encoded:
    return encode(FrameType.DROP, epoch, 0, 0)


def checkpoint_path(name: str) -> str:
    return f"{CHECKPOINTS}/{name}"


def write_checkpoint(disk: Disk, name: str, index: int, frames: Iterable[Encoded]) -> int:
    """Write a checkpoint file and return its size."""
    seed = int.from_bytes(os.urandom(8), "little")
    parts = [file_header(FileKind.CHECKPOINT, index, seed)]
    offset = FILE_HEADER.size
    for frame in frames:
        parts.extend(frame.seal(seed, offset))
        offset += frame.length
    disk.write_file(checkpoint_path(name), b"".join(parts))
    return offset


def read_checkpoint(disk: Disk, name: str) -> Iterator[Frame]:
    path = checkpoint_path(name)
    for item in scan_checkpoint(disk, name):
        if isinstance(item, FrameDamage):
            raise DamagedFile(path, f"{item.why} at byte {item.offset}")
        yield item


def scan_checkpoint(disk: Disk, name: str) -> Iterator[Frame | FrameDamage]:
    path = checkpoint_path(name)
    if not disk.exists(path):
        raise MissingFile(path)
    raw = disk.read(path)
    _, seed = read_file_header(path, raw, FileKind.CHECKPOINT)
    yield from scan(raw, seed, FILE_HEADER.size)


class StoredBook(NamedTuple):
    """A logbook as the checkpoints have it: the state that it was made of, and its reservation, which a replay
    settles."""

    state: bytes
    book: Logbook
    reserved: int


class StoredBooks(NamedTuple):
    """All logbooks by epoch. Those of ``overlaid`` logs consist of more than their state."""

    stored: dict[int, StoredBook]
    overlaid: Set[int]

    @property
    def books(self) -> dict[int, Logbook]:
        return {epoch: each.book for epoch, each in self.stored.items()}


def load_books(frames: Iterable[Frame]) -> dict[int, Logbook]:
    """Return the logbooks by epoch, from the frames of all checkpoints in order; see ``load_stored_books``."""
    return load_stored_books(frames, {}).books


def load_stored_books(frames: Iterable[Frame], known: Mapping[int, StoredBook]) -> StoredBooks:
    """Return the logbooks, from the frames of all checkpoints in order. Later frames replace earlier ones.

    ``known`` are logbooks that were loaded earlier and have not changed since. They are used again if their state is
    still the same. Forks are not linked to their sources yet.
    """
    states: dict[int, bytes] = {}
    overlays: dict[int, dict[int, OverlayState]] = {}
    for frame in frames:
        if frame.type is FrameType.STATE:
            states[frame.epoch] = frame.body
        elif frame.type is FrameType.OVERLAY:
            overlay = unpack(frame.body, OverlayState)
            overlays.setdefault(frame.epoch, {})[overlay.segment] = overlay
        elif frame.type is FrameType.DROP:
            states.pop(frame.epoch, None)
            overlays.pop(frame.epoch, None)
    # A million logs typically share a few configurations, so each is decoded and checked once.
    configs: dict[bytes, Config] = {}
    stored: dict[int, StoredBook] = {}
    for epoch, raw in states.items():
        before = known.get(epoch)
        if before is not None and before.state == raw and epoch not in overlays:
            before.book.reserved = before.book.reserved_durable = before.reserved
            stored[epoch] = before
            continue
        book = _made(epoch, raw, configs)
        for run in book.runs:
            overlay_of_run = overlays.get(epoch, {}).get(run.segment)
            if overlay_of_run is not None:
                run.overlay = overlay_of_run.make()
        stored[epoch] = StoredBook(raw, book, book.reserved)
    return StoredBooks(stored, overlays.keys())


def _made(epoch: int, raw: bytes, configs: dict[bytes, Config]) -> Logbook:
    state: BookState = unpack(raw, _StoredState)
    packed = bytes(state.config)  # type: ignore[call-overload]
    config = configs.get(packed)
    if config is None:
        config = configs[packed] = unpack(packed, Config)
    state.config = config
    return state.make(epoch)
