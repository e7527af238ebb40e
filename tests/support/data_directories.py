"""Data directories for the tests of verify, repair and dump: known records, and ways to damage what holds them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from strandline.engine import Batch, Config, Engine, ManualClock, Options, Record, Tombstone
from strandline.engine.disk import LocalDisk
from strandline.engine.journal.bodies import unpack
from strandline.engine.journal.frame import FrameType, encode
from strandline.engine.segments import writer
from strandline.engine.segments.cold_tier import ColdStore
from strandline.engine.state.checkpoints import (
    BookState,
    Manifest,
    OverlayState,
    drop_frame,
    overlay_frame,
    read_manifest,
    state_frame,
    write_checkpoint,
    write_manifest,
)
from strandline.engine.verify.rebuild import checkpoint_frames

NOW = 1_700_000_000_000
#: Does not compress, so that a segment of a few hundred records has several blocks.
NOISE = os.urandom(8000)

History = dict[str, list[Record]]


def open_engine(path: Path, cold: ColdStore | None = None, **options: object) -> Engine:
    return Engine.open(path, Options(**options), clock=ManualClock(NOW), cold=cold, background=False)  # type: ignore[arg-type]


def fill(engine: Engine, name: str, count: int, **config: object) -> None:
    log = engine.find(name) or engine.create(name, Config(**config)).wait()  # type: ignore[arg-type]
    for _ in range(count):
        number = log.head + 1
        log.append(Batch.of(b"%d:" % number + NOISE, key=f"k{number % 5}", node="n", meta=b"m")).wait()


@patch.object(writer, "BLOCK_BYTES", 1 << 20)
def make(path: Path, cold: ColdStore | None = None, **options: object) -> None:
    """Logs ``a`` and ``b`` in two segments and the journal, with deleted, hidden and amended records. The blocks are of
    a megabyte, whatever size is best for reading."""
    engine = open_engine(path, cold, **options)
    fill(engine, "a", 300)
    fill(engine, "b", 40)
    engine.seal()
    engine.log("a").delete(seqs=[5, 6, 7, 290]).wait()
    engine.log("a").hide(seqs=[11, 12]).wait()
    engine.log("a").amend(20, b"amended").wait()
    fill(engine, "a", 30)
    engine.seal()
    fill(engine, "a", 10)
    fill(engine, "b", 10)
    engine.log("b").delete(before=4).wait()
    engine.close()


def records(path: Path, cold: ColdStore | None = None) -> History:
    with open_engine(path, cold) as engine:
        return {name: read_all(engine, name)[0] for name in engine.names()}


def read_all(engine: Engine, name: str) -> tuple[list[Record], list[Tombstone]]:
    log, after = engine.log(name), 0
    found: list[Record] = []
    tombstones: list[Tombstone] = []
    while True:
        page = log.read(after, 1000)
        found.extend(page)
        if page.tombstone is not None:
            tombstones.append(page.tombstone)
        if page.caught_up:
            return found, tombstones
        after = page.next_after


def poke(path: Path, offset: int, size: int = 1) -> None:
    """Change bytes; a negative offset counts from the end."""
    raw = bytearray(path.read_bytes())
    offset %= len(raw)
    for at in range(offset, offset + size):
        raw[at] ^= 0xFF
    path.write_bytes(raw)


def tree(path: Path) -> dict[str, bytes]:
    """All files with data: not the lock, and not the flush mark."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name not in ("LOCK", "FLUSHED")
    }


def change_manifest(path: Path, change: Callable[[Manifest], object]) -> None:
    disk = LocalDisk(path)
    manifest = read_manifest(disk)
    assert manifest is not None
    change(manifest)
    write_manifest(disk, manifest)


def change_states(path: Path, name: str, change: Callable[[BookState], object]) -> None:
    """Write the newest checkpoint anew, checksums and all, with another state of a log."""
    disk = LocalDisk(path)
    manifest = read_manifest(disk)
    assert manifest is not None
    newest = manifest.checkpoints[-1]
    frames = []
    for frame in checkpoint_frames(disk, [newest]):
        if frame.type is FrameType.STATE:
            state = unpack(frame.body, BookState)
            if state.name == name:
                change(state)
            frames.append(state_frame(frame.epoch, state))
        elif frame.type is FrameType.OVERLAY:
            frames.append(overlay_frame(frame.epoch, unpack(frame.body, OverlayState)))
        elif frame.type is FrameType.DROP:
            frames.append(drop_frame(frame.epoch))
        else:
            frames.append(encode(frame.type, frame.epoch, frame.first, frame.ts, frame.body))
    write_checkpoint(disk, newest, int(newest.partition(".")[0]), frames)


def block_of(path: Path, segment: int, index: int) -> tuple[Path, int, int]:
    """The file of a segment, and from where to where a block lies in it."""
    from strandline.engine.segments.footer import read_footer
    from strandline.engine.segments.store import segment_path

    file = path / segment_path(segment)
    block = read_footer(str(file), file.read_bytes()).blocks[index]
    return file, block.offset, block.end
