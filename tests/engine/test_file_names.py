from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.data_directories import change_manifest, fill, open_engine, tree

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile
from strandline.engine.file_names import check_name, is_name, number_in
from strandline.engine.journal.file import journal_indexes, journal_path
from strandline.engine.segments.store import object_name, segment_id
from strandline.engine.state.checkpoints import JournalEntry, Manifest, SegmentEntry, checkpoint_path
from strandline.engine.verify.directory_check import verify


@pytest.mark.parametrize("number", [1, 12, 99_999_999, 100_000_000, 1 << 40])
def test_the_names_that_the_program_writes_are_accepted(number: int) -> None:
    assert segment_id(object_name(number)) == number
    assert number_in("journal", journal_path(number).rpartition("/")[2]) == number
    for ending in ("full", "changes"):
        assert number_in("checkpoint", checkpoint_path(f"{number:08d}.{ending}").rpartition("/")[2]) == number


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../00000001.arrow", "/00000001.arrow", "00000001.arrow/../x", "1.arrow", "000000001.arrow",
        "00000001.ARROW", "00000001.arrow\n", "00000001.arrow.tmp", "٠٠٠٠٠٠٠١.arrow", "-0000001.arrow",
        "0000_001.arrow", "99999999999999999999.arrow", "00000001.arrow\0",
    ],
)  # fmt: skip
def test_any_other_name_is_not(name: str) -> None:
    assert not is_name("segment", name)
    with pytest.raises(DamagedFile, match=r"as a segment; expected a name like 00000012\.arrow"):
        check_name("segment", name, "MANIFEST")


TAMPERED: dict[str, Callable[[Manifest], object]] = {
    "a checkpoint outside": lambda manifest: manifest.checkpoints.append("../../outside"),
    "a checkpoint of another kind": lambda manifest: manifest.checkpoints.append("00000001.arrow"),
    "a segment below zero": lambda manifest: manifest.segments.append(SegmentEntry(-1, 1, 1, 1)),
    "a journal file below zero": lambda manifest: manifest.journals.append(JournalEntry(-1)),
    "a boundary of nothing": lambda manifest: setattr(manifest, "boundary", 0),
    "a huge number": lambda manifest: setattr(manifest, "next_segment", 1 << 60),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_manifest_that_names_other_files_is_refused(what: str, tmp_path: Path) -> None:
    with open_engine(tmp_path / "data") as engine:
        fill(engine, "a", 1)
        engine.seal()
    change_manifest(tmp_path / "data", TAMPERED[what])
    before = tree(tmp_path)
    with pytest.raises(DamagedFile, match="MANIFEST is damaged: it "):
        open_engine(tmp_path / "data")
    assert verify(LocalDisk(tmp_path / "data")).problems[0].startswith("MANIFEST: it ")
    assert tree(tmp_path) == before


def test_stray_files_are_no_files_of_the_directory(tmp_path: Path) -> None:
    with open_engine(tmp_path / "data") as engine:
        fill(engine, "a", 1)
    for name in ("1.journal", "٠٠٠٠٠٠٠٢.journal", "00000002.journal.old", "letter"):
        (tmp_path / "data/journal" / name).write_bytes(b"stray")
    assert journal_indexes(LocalDisk(tmp_path / "data")) == [1]
    with open_engine(tmp_path / "data") as engine:
        assert engine.log("a").head == 1
