"""Print a file of a data directory: journal, checkpoint, segment, manifest or flush mark.

:func:`dump` yields one :class:`DumpItem` for each part of the file, including damage, and never stops at damage. An
item prints as one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.journal.bodies import (
    KEEP_KEYS,
    KEEP_NODES,
    Configure,
    CursorMove,
    Extras,
    Floor,
    ForkPoint,
    Forward,
    ForwardTarget,
    GapBody,
    Select,
    unpack,
)
from strandline.engine.journal.file import FLUSHED, decode_mark
from strandline.engine.journal.frame import (
    FILE_HEADER,
    MAGIC,
    MORE,
    VERSION,
    FileKind,
    Frame,
    FrameDamage,
    FrameReader,
    FrameType,
    decode_append,
    read_file_header,
)
from strandline.engine.segments.footer import ARROW_MAGIC, RunInfo, describe
from strandline.engine.segments.segment import Segment
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import MANIFEST, BookState, Manifest, OverlayState, RunState, parse_manifest
from strandline.engine.state.notes import SECRET

#: Maximum bytes of a payload to print.
SHOWN_BYTES = 48
#: Default maximum number of records per frame, and of rows per segment, to print.
SHOWN_ROWS = 10

Facts = dict[str, Any]


class DumpItem(msgspec.Struct, omit_defaults=True):
    """One item of a file: its ``kind``, and the ``offset`` where it begins."""

    kind: str
    facts: Facts
    offset: int | None = None

    def __str__(self) -> str:
        place = "" if self.offset is None else str(self.offset)
        facts = "  ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{place:>10}  {self.kind:<9}  {facts}"


def dump(path: str | os.PathLike[str], rows: int = SHOWN_ROWS) -> Iterator[DumpItem]:
    """Yield everything in a file, with at most ``rows`` records of every frame and of a segment. Raises only
    OSError."""
    file = Path(path)
    with open(file, "rb", buffering=0) as opened:
        start = opened.read(FILE_HEADER.size)
    if file.name == FLUSHED:
        yield from _dump_mark(file.read_bytes())
    elif _looks_like(file, start, b"{", MANIFEST, ""):
        yield from _dump_manifest(file.name, file.read_bytes())
    elif _looks_like(file, start, ARROW_MAGIC, "", ".arrow"):
        yield from _dump_segment(file, file.read_bytes(), rows)
    else:
        yield from _dump_frames(file, start, rows)


def _looks_like(file: Path, raw: bytes, start: bytes, name: str, suffix: str) -> bool:
    """Recognise a file by its first bytes or, if they are unknown, by its name. A damaged file may have ``.2`` after
    its name."""
    if raw.startswith((b"{", ARROW_MAGIC, MAGIC)):
        return raw.startswith(start)
    return (bool(name) and file.name.startswith(name)) or (bool(suffix) and suffix in file.suffixes)


def iso(ts: int) -> str:
    """Format a time in milliseconds."""
    try:
        return datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ts}ms"


def shorten(data: bytes) -> str:
    """Return a payload as text if possible, otherwise in hexadecimal, shortened if it is long."""
    start = data[:SHOWN_BYTES]
    more = "…" if len(data) > SHOWN_BYTES else ""
    text = start.decode("utf-8", "ignore" if more else "replace")
    if text.isprintable() and "\ufffd" not in text and (more or text.encode() == start):
        return f"{text!r}{more}"
    return f"0x{start.hex()}{more}"


def _dump_mark(raw: bytes) -> Iterator[DumpItem]:
    yield DumpItem("file", {"name": FLUSHED, "what": "flush mark", "size": len(raw)})
    mark = decode_mark(raw)
    if mark is None:
        yield DumpItem("damage", {"why": "it is incomplete; a start ignores it"}, 0)
    else:
        yield DumpItem("mark", {"journal": mark.number, "flushed": mark.size, "left_size": mark.left_size}, 0)


# --- the manifest --------------------------------------------------------------------------------------------


def _dump_manifest(name: str, raw: bytes) -> Iterator[DumpItem]:
    yield DumpItem("file", {"name": name, "what": "manifest", "size": len(raw)})
    try:
        manifest = parse_manifest(raw, name)
    except EngineError as error:
        yield DumpItem("damage", {"why": str(error)})
        yield from (DumpItem("text", {"line": shorten(line)}, None) for line in raw.splitlines())
        return
    yield from _manifest_items(manifest)


def _manifest_items(manifest: Manifest) -> Iterator[DumpItem]:
    facts = msgspec.to_builtins(manifest)
    journals, segments = facts.pop("journals"), facts.pop("segments")
    counts = {"journals": len(journals), "segments": len(segments)}
    yield DumpItem("manifest", {**facts, "last_ts": iso(manifest.last_ts), **counts})
    yield from (DumpItem("journal", {**entry, "size": entry["size"] or "open"}) for entry in journals)
    yield from (DumpItem("segment", {**entry, "edges": f"{entry['edges']:016x}"}) for entry in segments)


# --- journals and checkpoints --------------------------------------------------------------------------------


def _dump_frames(file: Path, raw: bytes, rows: int) -> Iterator[DumpItem]:
    """``raw`` is the beginning of the file."""
    size = file.stat().st_size
    is_checkpoint = bool({".full", ".changes"} & set(file.suffixes))
    kind = FileKind.CHECKPOINT if is_checkpoint else FileKind.JOURNAL
    if len(raw) >= FILE_HEADER.size and raw.startswith(MAGIC):
        found = FILE_HEADER.unpack_from(raw)[2]
        kind = FileKind(found) if found in FileKind.__members__.values() else kind
    header: Facts = {"name": file.name, "what": kind.name.lower(), "size": size}
    seed = 0
    if len(raw) >= FILE_HEADER.size:
        _, version, _, index, seed, boot, _ = FILE_HEADER.unpack_from(raw)
        header |= {"version": version, "index": index, "seed": f"{seed:016x}", "boot": boot.hex()}
    yield DumpItem("file", header, 0)
    try:
        read_file_header(file.name, raw, kind)
    except EngineError as error:
        why = error.why if isinstance(error, DamagedFile) else f"this release reads version {VERSION}"
        yield DumpItem("damage", {"bytes": min(len(raw), FILE_HEADER.size), "why": why}, 0)
    disk = LocalDisk(file.parent)
    for item in FrameReader(partial(disk.read, file.name), size, seed).frames():
        if isinstance(item, FrameDamage):
            yield DumpItem("damage", {"bytes": item.length, "why": item.why}, item.offset)
        else:
            yield from _dump_frame(item, rows)


def _dump_frame(frame: Frame, rows: int) -> Iterator[DumpItem]:
    facts: Facts = {"epoch": frame.epoch}
    details: list[DumpItem] = []
    try:
        facts |= _facts_of(frame)
        details = list(_details_of(frame, rows))
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        facts["undecodable"] = str(error)
    if frame.ts:
        facts["time"] = iso(frame.ts)
    facts["bytes"] = frame.length
    if frame.place or frame.flags & MORE:
        facts["group"] = f"{frame.place}{'' if frame.flags & MORE else ', the last'}"
    if frame.reserved:
        facts["reserved"] = frame.reserved
    yield DumpItem(frame.type.name.lower(), facts, frame.offset)
    yield from details


def _facts_of(frame: Frame) -> Facts:
    match frame.type:
        case FrameType.APPEND:
            block, extras = decode_append(frame)
            facts: Facts = {"seqs": _range(frame.first, frame.first + frame.count - 1)}
            if block.ts != frame.ts:
                facts["records_time"] = iso(block.timestamp(0))
            return facts | _extras(extras)
        case FrameType.NOTE:
            return _extras(unpack(frame.body, Extras))
        case FrameType.CONFIGURE:
            configure = unpack(frame.body, Configure)
            return {"name": repr(configure.name), "config": _changed(configure.config), **_base(configure.base)}
        case FrameType.DELETE | FrameType.HIDE | FrameType.RESTORE:
            return _given(unpack(frame.body, Select))
        case FrameType.AMEND:
            return {"seq": frame.first, "data": shorten(frame.body)}
        case FrameType.FLOOR:
            return _given(unpack(frame.body, Floor))
        case FrameType.GAP:
            gap = unpack(frame.body, GapBody)
            return {"seqs": _range(frame.first + 1, gap.last), "reason": gap.reason}
        case FrameType.CURSOR:
            move = unpack(frame.body, CursorMove)
            return {"cursor": repr(move.name), "at": "dropped" if move.seq is None else move.seq}
        case FrameType.FORWARD:
            forward = unpack(frame.body, Forward)
            chosen = [",".join(_range(*piece) for piece in ranges) for ranges in forward.selections]
            return {"selections": chosen, "targets": len(forward.targets)}
        case FrameType.STATE:
            return _state(unpack(frame.body, BookState))
        case FrameType.OVERLAY:
            return _overlay(unpack(frame.body, OverlayState))
    return {}


def _extras(extras: Extras | None) -> Facts:
    facts: Facts = {}
    if extras is not None and extras.idempotency_key is not None:
        facts["idempotency_key"] = repr(extras.idempotency_key)
    if extras is not None and extras.producer is not None:
        facts["producer"] = "{!r} epoch {} seq {}".format(*extras.producer)
    if extras is not None and extras.notes is not None:
        facts["notes"] = _notes(extras.notes)
    return facts


def _notes(notes: Mapping[str, Raw]) -> Facts:
    """Return notes with their values, shortened if long. Secret values are not shown. None: the note was removed."""
    return {
        name: "(secret)" if name.startswith(SECRET) else shorten(repr(unpack(bytes(raw), object)).encode())
        for name, raw in notes.items()
    }


def _base(point: ForkPoint | None) -> Facts:
    return {} if point is None else {"forked_from": point.epoch, "through": point.through}


def _details_of(frame: Frame, rows: int) -> Iterator[DumpItem]:
    if frame.type is FrameType.APPEND:
        block, _ = decode_append(frame)
        yield from (DumpItem("record", _record(block, row)) for row in range(min(rows, len(block))))
        if len(block) > rows:
            yield DumpItem("record", {"more": len(block) - rows})
    elif frame.type is FrameType.FORWARD:
        forward = unpack(frame.body, Forward)
        yield from (DumpItem("target", _target(forward, target)) for target in forward.targets[:rows])
        if len(forward.targets) > rows:
            yield DumpItem("target", {"more": len(forward.targets) - rows})
    elif frame.type is FrameType.STATE:
        yield from (DumpItem("run", _run(run)) for run in unpack(frame.body, BookState).runs)
    elif frame.type is FrameType.MANIFEST:
        yield from _manifest_items(unpack(frame.body, Manifest))


def _target(forward: Forward, target: ForwardTarget) -> Facts:
    facts: Facts = {}
    if target.epoch:
        facts["epoch"] = target.epoch
        if target.lost:
            facts["gap"] = _range(target.first - target.lost, target.first - 1)
        if target.selection >= 0:
            facts["seqs"] = _range(target.first, target.first + forward.count(target) - 1)
            facts["selection"] = target.selection
            dropped = [what for what, flag in (("keys", KEEP_KEYS), ("nodes", KEEP_NODES)) if not target.flags & flag]
            facts |= {"without": ",".join(dropped)} if dropped else {}
            facts |= {"metas": len(target.metas)} if target.metas is not None else {}
            facts |= {"records_time": iso(target.ts)} if target.ts else {}
        facts["reserved"] = target.reserved
    return facts | {"cursor": repr(target.cursor), "through": target.through}


def _state(state: BookState) -> Facts:
    return {
        "name": repr(state.name),
        "config": _changed(state.config),
        **({"created": iso(state.created_ts)} if state.created_ts else {}),
        "assigned": state.assigned,
        "earliest": state.earliest,
        "cap_floor": state.cap_floor,
        "ttl_floor": state.ttl_floor,
        "records": state.count,
        "size": state.size,
        "gaps": [f"{_range(gap.first, gap.last)} {gap.reason}" for gap in state.gaps],
        "idempotency_keys": len(state.idempotency),
        "producers": len(state.producers),
        "cursors": {name: cursor.seq for name, cursor in state.cursors.items()},
        "notes": _notes(state.notes),
        **_base(state.base),
    }


def _overlay(overlay: OverlayState) -> Facts:
    return {
        "segment": overlay.segment,
        "dead": [_range(*piece) for piece in overlay.dead],
        "hidden": [_range(*piece) for piece in overlay.hidden],
        "amended": {seq: shorten(data) for seq, data in overlay.amended},
    }


def _record(block: Block, row: int) -> Facts:
    facts: Facts = {"seq": block.seq(row)}
    for name, column in (("key", block.keys), ("node", block.nodes)):
        if column is not None and column[row] is not None:
            facts[name] = repr(column[row])
    meta = None if block.metas is None else block.metas[row]
    if meta is not None:
        facts["meta"] = shorten(meta)
    return facts | {"size": len(block.payload(row)), "data": shorten(block.payload(row))}


# --- segments ------------------------------------------------------------------------------------------------


def _dump_segment(file: Path, raw: bytes, rows: int) -> Iterator[DumpItem]:
    yield DumpItem("file", {"name": file.name, "what": "segment", "size": len(raw)}, 0)
    try:
        info = describe(file.name, raw)
        segment = Segment.open(str(file), file.name, info.id, info.size, info.edges)
    except EngineError as error:
        yield DumpItem("damage", {"why": error.why if isinstance(error, DamagedFile) else str(error)})
        return
    facts = {"id": info.id, "rows": info.rows, "runs": len(info.runs), "blocks": len(segment.blocks)}
    yield DumpItem("footer", {**facts, "edges": f"{info.edges:016x}"})
    yield from (DumpItem("run", {"log": repr(run.name), "epoch": run.epoch, **_run(run)}) for run in segment.runs)
    for block in segment.blocks:
        rows_of = f"{block.row}..{block.row + block.rows - 1}"
        place: Facts = {"rows": rows_of, "bytes": block.end - block.offset}
        yield DumpItem("block", {**place, "size": block.size, "sum": f"{block.sum:016x}"}, block.offset)
    yield from _dump_rows(segment, rows)


def _dump_rows(segment: Segment, limit: int) -> Iterator[DumpItem]:
    runs = iter(segment.runs)
    run = next(runs)
    for index, info in enumerate(segment.blocks):
        try:
            block = segment.load(index)
        except DamagedFile as error:
            yield DumpItem("damage", {"bytes": info.end - info.offset, "why": error.why}, info.offset)
            continue
        for row in range(min(limit, len(block))):
            while info.row + row >= run.row + run.rows:
                run = next(runs)
            facts = _record(block, row)
            seq = facts.pop("seq")
            time = iso(block.timestamp(row))
            yield DumpItem("row", {"log": repr(run.name), "epoch": run.epoch, "seq": seq, "time": time, **facts})
        # Blocks after the limit are still read, to find damage in them.
        limit -= min(limit, len(block))


def _run(run: RunState | RunInfo) -> Facts:
    facts: Facts = {} if isinstance(run, RunInfo) else {"segment": run.segment}
    facts |= {
        "seqs": _range(run.first, run.last),
        "rows": f"{run.row}..{run.row + run.rows - 1}",
        "time": f"{iso(run.ts_first)}..{iso(run.ts_last)}",
    }
    if run.key_first is not None:
        facts["keys"] = f"{run.key_first!r}..{run.key_last!r}"
    if isinstance(run, RunInfo):
        return facts | {"size": run.size}
    return facts | {"live": run.live, "live_size": run.live_size}


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def _given(struct: msgspec.Struct) -> Facts:
    return {name: value for name in struct.__struct_fields__ if (value := getattr(struct, name)) is not None}


def _changed(config: msgspec.Struct) -> str:
    """Return the fields of a configuration that differ from the default."""
    default = type(config)()
    values = {name: getattr(config, name) for name in config.__struct_fields__}
    changed = [f"{name}={value}" for name, value in values.items() if value != getattr(default, name)]
    return ",".join(changed) or "default"
