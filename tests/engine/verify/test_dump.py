from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.data_directories import poke

from strandline.engine import Batch, Config, Producer
from strandline.engine.disk import LocalDisk
from strandline.engine.journal.bodies import (
    KEEP_KEYS,
    KEEP_NODES,
    Configure,
    CursorMove,
    Extras,
    Floor,
    Forward,
    ForwardTarget,
    GapBody,
    Select,
    pack,
)
from strandline.engine.journal.file import FLUSHED, FlushMark, encode_mark
from strandline.engine.journal.frame import Encoded, FileKind, FrameType, encode, encode_append, file_header, group
from strandline.engine.segments.jobs import Keep, SealJob, run
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import (
    BookState,
    JournalEntry,
    Manifest,
    OverlayState,
    SegmentEntry,
    manifest_frame,
    overlay_frame,
    state_frame,
    write_manifest,
)
from strandline.engine.state.idempotency import check_extras
from strandline.engine.state.logbook import Logbook
from strandline.engine.verify.dump import SHOWN_BYTES, DumpItem, dump, iso, shorten

SEED = 0x5EED
TS = 1_700_000_000_000
TIME = "time=2023-11-14T22:13:20.000Z"


def write_frames(path: Path, kind: FileKind, frames: list[Encoded]) -> list[tuple[int, int]]:
    """Returns where each frame begins, and its length."""
    raw = file_header(kind, 7, SEED, b"bootboot")
    places = []
    for frame in frames:
        places.append((len(raw), frame.length))
        raw += b"".join(frame.seal(SEED, len(raw)))
    path.write_bytes(raw)
    return places


def append(first: int, batch: Batch, extras: Extras | None = None) -> Encoded:
    return encode_append(1, Block.of_batch(first, TS, batch), TS, 99, extras)


def write_journal(path: Path) -> list[tuple[int, int]]:
    frames = [
        encode(FrameType.CONFIGURE, 1, 0, TS, pack(Configure("orders", Config(cap_records=5))), reserved=99),
        append(1, Batch([b"one", b"two", b"\x00\xff"], ["k", None, "l"], ["n", "n", "n"], [b"{}", None, None])),
        append(4, Batch.of(b"x" * 100), Extras("again", Producer("p", 1, 2))),
        encode(FrameType.DELETE, 1, 4, TS, pack(Select(4, key="k"))),
        encode(FrameType.HIDE, 1, 4, TS, pack(Select(4, seqs=[2]))),
        encode(FrameType.AMEND, 1, 3, TS, b"three"),
        encode(FrameType.FLOOR, 1, 4, TS, pack(Floor(2))),
        encode(FrameType.GAP, 1, 4, TS, pack(GapBody(9, "source_trim"))),
        encode(FrameType.RESERVE, 1, 9, TS, reserved=9),
        encode(FrameType.DROP, 1, 0, TS),
        encode(FrameType.CLOSE, 0, 0, TS),
    ]
    return write_frames(path, FileKind.JOURNAL, frames)


def lines(path: Path, rows: int = 10) -> list[str]:
    return [" ".join(str(item).split()) for item in dump(path, rows)]


def test_a_journal_is_printed_frame_by_frame(tmp_path: Path) -> None:
    path = tmp_path / "00000007.journal"
    (_, configure), *places = write_journal(path)
    size = path.stat().st_size
    # An append is its header, one offset more than records, the columns, and the data back to back.
    assert places[0][1] == 56 + 4 * 4 + (3 * 2 + 2) + (3 * 2 + 3) + (3 * 4 + 2) + 8
    at, length = zip(*places, strict=True)
    floor = " ".join(f"{name}={getattr(Floor(2), name)}" for name in Floor.__struct_fields__)
    assert lines(path) == [
        f"0 file name=00000007.journal what=journal size={size} version=1 index=7 seed=0000000000005eed "
        "boot=626f6f74626f6f74",
        f"48 configure epoch=1 name='orders' config=cap_records=5 {TIME} bytes={configure} reserved=99",
        f"{at[0]} append epoch=1 seqs=1..3 {TIME} bytes=111 reserved=99",
        "record seq=1 key='k' node='n' meta='{}' size=3 data='one'",
        "record seq=2 node='n' size=3 data='two'",
        "record seq=3 key='l' node='n' size=2 data=0x00ff",
        f"{at[1]} append epoch=1 seqs=4 idempotency_key='again' producer='p' epoch 1 seq 2 {TIME} bytes=181 "
        "reserved=99",
        f"record seq=4 size=100 data='{'x' * SHOWN_BYTES}'…",
        f"{at[2]} delete epoch=1 bound=4 key=k {TIME} bytes=63",
        f"{at[3]} hide epoch=1 bound=4 seqs=[2] {TIME} bytes=63",
        f"{at[4]} amend epoch=1 seq=3 data='three' {TIME} bytes=61",
        f"{at[5]} floor epoch=1 {floor} {TIME} bytes={length[5]}",
        f"{at[6]} gap epoch=1 seqs=5..9 reason=source_trim {TIME} bytes=70",
        f"{at[7]} reserve epoch=1 {TIME} bytes=56 reserved=9",
        f"{at[8]} drop epoch=1 {TIME} bytes=56",
        f"{at[9]} close epoch=0 {TIME} bytes=56",
    ]


def test_cursors_notes_and_forwarded_records_are_printed(tmp_path: Path) -> None:
    path = tmp_path / "00000007.journal"
    targets = [
        ForwardTarget(2, 5, 3, 0, KEEP_KEYS, 99, "router", 4, [b"m", None, None]),
        ForwardTarget(3, 1, 0, 0, KEEP_KEYS | KEEP_NODES, 9, "other", 4),
        ForwardTarget(0, 0, 0, -1, 0, 0, "third", 4),
    ]
    frames = [
        encode(FrameType.CURSOR, 1, 4, TS, pack(CursorMove("c", 3))),
        encode(FrameType.CURSOR, 1, 4, TS, pack(CursorMove("c", None))),
        encode(FrameType.NOTE, 1, 4, TS, pack(check_extras(None, Producer("p", 0, 1), {"n": {"a": 1}, "gone": None}))),
        *group(
            [
                append(9, Batch.of(b"x")),
                encode(FrameType.FORWARD, 1, 4, TS, pack(Forward([[(1, 2), (4, 4)]], targets)), count=3),
            ]
        ),
    ]
    at, length = zip(*write_frames(path, FileKind.JOURNAL, frames), strict=True)
    assert lines(path)[1:] == [
        f"{at[0]} cursor epoch=1 cursor='c' at=3 {TIME} bytes={length[0]}",
        f"{at[1]} cursor epoch=1 cursor='c' at=dropped {TIME} bytes={length[1]}",
        f"{at[2]} note epoch=1 producer='p' epoch 0 seq 1 notes={{'n': '\"{{\\'a\\': 1}}\"', "
        f"'gone': \"'None'\"}} {TIME} bytes={length[2]}",
        f"{at[3]} append epoch=1 seqs=9 {TIME} bytes={length[3]} group=0 reserved=99",
        "record seq=9 size=1 data='x'",
        f"{at[4]} forward epoch=1 selections=['1..2,4'] targets=3 {TIME} bytes={length[4]} group=1, the last",
        "target epoch=2 gap=2..4 seqs=5..7 selection=0 without=nodes metas=3 reserved=99 cursor='router' through=4",
        "target epoch=3 seqs=1..3 selection=0 reserved=9 cursor='other' through=4",
        "target cursor='third' through=4",
    ]
    assert lines(path, rows=1)[-1] == "target more=2"


def test_the_value_of_a_secret_note_is_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "00000007.journal"
    extras = pack(check_extras(None, None, {"secret_seed": b"do not tell", "told": 1}))
    write_frames(path, FileKind.JOURNAL, [encode(FrameType.NOTE, 1, 4, TS, extras)])
    printed = "".join(lines(path))
    assert "'secret_seed': '(secret)'" in printed
    assert "told" in printed
    assert "do not tell" not in printed


def test_an_item_is_one_aligned_line() -> None:
    assert str(DumpItem("append", {"epoch": 1, "seqs": "1..3"}, 48)) == "        48  append     epoch=1  seqs=1..3"
    assert str(DumpItem("record", {"seq": 1})) == "            record     seq=1"


def test_records_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "00000007.journal"
    write_journal(path)
    assert lines(path, rows=1)[3:5] == ["record seq=1 key='k' node='n' meta='{}' size=3 data='one'", "record more=2"]
    assert lines(path, rows=0)[3] == "record more=3"


def test_damage_is_shown_where_it_is_and_the_rest_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "00000007.journal"
    places = write_journal(path)
    whole = lines(path)
    poke(path, places[1][0] + 80)
    path.write_bytes(path.read_bytes()[:-3])
    found = lines(path)
    assert found[2] == f"{places[1][0]} damage bytes=111 why=the frame's checksum does not match"
    assert found[3:-1] == whole[6:-1]
    assert found[-1] == f"{places[-1][0]} damage bytes=53 why=the frame's header is cut off"


@pytest.mark.parametrize("offset", [0, 8, 12, 30])
def test_a_damaged_header_does_not_stop_it(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "00000007.journal"
    write_journal(path)
    whole = lines(path)
    poke(path, offset)
    found = lines(path)
    assert found[1].startswith("0 damage bytes=48 why=")
    # With a wrong seed no frame can be told from noise.
    assert found[2:] == whole[1:] if offset != 30 else len(found) == 3


@pytest.mark.parametrize("raw", [b"", b"x", b"STRANDLN", b"{", b"ARROW1", b"ARROW1" * 20, bytes(1000)])
@pytest.mark.parametrize("name", ["MANIFEST", "1.journal", "1.full", "1.arrow", "1.arrow.2", "letter"])
def test_what_is_no_such_file_is_damage(tmp_path: Path, name: str, raw: bytes) -> None:
    (tmp_path / name).write_bytes(raw)
    kinds = [item.kind for item in dump(tmp_path / name)]
    assert kinds[:2] == ["file", "damage"]


def test_a_frame_that_does_not_decode_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "00000007.journal"
    write_frames(path, FileKind.JOURNAL, [encode(FrameType.CONFIGURE, 1, 0, TS, b"junk")])
    assert "undecodable=" in lines(path)[1]


def test_a_checkpoint_is_printed_with_states_and_overlays(tmp_path: Path) -> None:
    path = tmp_path / "00000007.full"
    book = Logbook("orders", 3, Config())
    book.assigned = book.head = 9
    book.skip(10, 12, "lost")
    manifest = Manifest(id="0f", segments=[SegmentEntry(1, 100, 255, 3)])
    overlay = OverlayState(1, [(1, 2)], [(3, 3)], [(4, b"new")])
    frames = [manifest_frame(manifest), state_frame(3, BookState.of(book)), overlay_frame(3, overlay)]
    _, (state_at, _), (overlay_at, _) = write_frames(path, FileKind.CHECKPOINT, frames)
    assert [line.partition(" bytes=")[0] for line in lines(path)[1:]] == [
        "48 manifest epoch=0",
        "manifest version=1 id=0f boundary=1 checkpoints=[] next_segment=1 next_checkpoint=1 next_epoch=1 "
        "last_ts=1970-01-01T00:00:00.000Z journals=0 segments=1",
        "segment id=1 size=100 edges=00000000000000ff rows=3 tier=hot",
        f"{state_at} state epoch=3 name='orders' config=default assigned=12 earliest=1 cap_floor=1 ttl_floor=1 "
        "records=0 size=0 gaps=['10..12 lost'] idempotency_keys=0 producers=0 cursors={} notes={}",
        f"{overlay_at} overlay epoch=3 segment=1 dead=['1..2'] hidden=['3'] amended={{4: \"'new'\"}}",
    ]


def test_a_manifest_is_printed(tmp_path: Path) -> None:
    journals = [JournalEntry(1, 500), JournalEntry(2)]
    segments = [SegmentEntry(1, 100, 255, 3, "cold")]
    write_manifest(LocalDisk(tmp_path), Manifest(id="0f", last_ts=TS, journals=journals, segments=segments))
    assert lines(tmp_path / "MANIFEST")[1:] == [
        "manifest version=1 id=0f boundary=1 checkpoints=[] next_segment=1 next_checkpoint=1 next_epoch=1 "
        "last_ts=2023-11-14T22:13:20.000Z journals=2 segments=1",
        "journal index=1 size=500",
        "journal index=2 size=open",
        "segment id=1 size=100 edges=00000000000000ff rows=3 tier=cold",
    ]


def test_a_damaged_manifest_is_printed_as_text(tmp_path: Path) -> None:
    write_manifest(LocalDisk(tmp_path), Manifest(id="0f"))
    file = tmp_path / "MANIFEST"
    file.write_bytes(file.read_bytes().replace(b"0f", b"0e"))
    found = lines(file)
    assert found[1] == "damage why=MANIFEST is damaged: its checksum does not match"
    assert 'text line=\' "id": "0e",\'' in found


def segment_of(tmp_path: Path) -> Path:
    write_journal(tmp_path / "00000007.journal")
    run(LocalDisk(tmp_path), SealJob(1, "00000001.arrow", ["00000007.journal"], [Keep(1, "orders", 1)]))
    return tmp_path / "00000001.arrow"


def test_a_segment_is_printed_with_footer_runs_blocks_and_rows(tmp_path: Path) -> None:
    path = segment_of(tmp_path)
    found = lines(path, rows=2)
    assert found[0] == f"0 file name=00000001.arrow what=segment size={path.stat().st_size}"
    assert found[1].startswith("footer id=1 rows=4 runs=1 blocks=1 edges=")
    assert found[2] == (
        "run log='orders' epoch=1 seqs=1..4 rows=0..3 "
        "time=2023-11-14T22:13:20.000Z..2023-11-14T22:13:20.000Z keys='k'..'l' size=110"
    )
    assert " block rows=0..3 bytes=" in found[3]
    assert found[4:] == [
        f"row log='orders' epoch=1 seq=1 {TIME} key='k' node='n' meta='{{}}' size=3 data='one'",
        f"row log='orders' epoch=1 seq=2 {TIME} node='n' size=3 data='two'",
    ]


def test_damage_in_a_segment_is_shown(tmp_path: Path) -> None:
    path = segment_of(tmp_path)
    (block,) = [item for item in dump(path) if item.kind == "block"]
    assert block.offset is not None
    poke(path, block.offset + block.facts["bytes"] // 2)
    damage = list(dump(path))[-1]
    assert (damage.kind, damage.offset) == ("damage", block.offset)
    assert damage.facts["why"] == "the checksum of block 0 does not match"
    poke(path, -1)
    assert [item.kind for item in dump(path)] == ["file", "damage"]


def test_a_flush_mark(tmp_path: Path) -> None:
    path = tmp_path / FLUSHED
    path.write_bytes(encode_mark(FlushMark(1, 7, 4096, 512)))
    [_, mark] = dump(path)
    assert (mark.kind, mark.facts) == ("mark", {"journal": 7, "flushed": 4096, "left_size": 512})
    poke(path, 30)
    assert [item.kind for item in dump(path)] == ["file", "damage"]


def test_everything_can_be_printed_as_json(tmp_path: Path) -> None:
    path = segment_of(tmp_path)
    for file in (path, tmp_path / "00000007.journal"):
        for item in dump(file):
            assert msgspec.json.decode(msgspec.json.encode(item))["kind"] == item.kind


def test_payloads_are_shortened_and_never_break_a_line() -> None:
    assert shorten(b"plain") == "'plain'"
    assert shorten("grün".encode()) == "'grün'"
    assert shorten(b"a\nb") == "0x610a62"
    assert shorten(b"\xff") == "0xff"
    assert shorten(b"") == "''"
    assert shorten(("x" + "ü" * 100).encode()) == "'x" + "ü" * 23 + "'…"


def test_times_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert iso(TS) == "2023-11-14T22:13:20.000Z"
    assert iso(1 << 62) == f"{1 << 62}ms"
