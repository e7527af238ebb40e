"""Companions of many small logs: they share files, are found there, and leave nothing behind that was erased."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pytest
from support.companion_rounds import Bed, document
from support.local_tasks import work_here
from support.object_store import object_store

from strandline.lake.location import Lake
from strandline.pipeline.companions import stage, work
from strandline.query.index_files.catalog import IndexCatalog
from strandline.query.index_files.shared_file import FilePart, file_of, part_of
from strandline.service.workers import Workers

LOGS = [f"log{number}" for number in range(12)]
#: The records of each log.
BOTH = {name: [1, 2] for name in LOGS}


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    work_here(monkeypatch, wave=8)
    return Bed(tmp_path)


def fill(bed: Bed) -> None:
    for number, name in enumerate(LOGS):
        bed.create(name)
        bed.append(document(number), document(number + 1), name=name)


def used(bed: Bed) -> set[str]:
    return {file_of(entry.path) for entry in bed.entries()}


def found(bed: Bed) -> dict[str, list[int]]:
    """The seqs of the companions as a server opens them."""
    threads = Workers()
    catalog = IndexCatalog(bed.lake, bed.root / "cache", threads.lake, look_seconds=0)
    seqs: dict[str, list[int]] = {}
    for epoch in {entry.info.epoch for entry in bed.entries()}:
        for entry in catalog.entries_of(epoch).entries:
            index_file = catalog.open(entry, perf_counter() + 60)
            assert index_file is not None
            chunk = index_file.chunk()
            assert chunk is not None
            seqs.setdefault(entry.info.log, []).extend(chunk.seqs.tolist())
    return seqs


def test_companions_of_small_logs_share_a_file(bed: Bed) -> None:
    fill(bed)
    bed.round()
    assert len(bed.entries()) == len(LOGS)
    assert len(bed.files()) == 1
    assert found(bed) == BOTH
    assert bed.counts("log3") == 2
    bed.fill(1, 5, name="log3")
    bed.round()
    assert len(bed.files()) == 3, "the old one, the one of the new records, and the one of both"
    assert found(bed) == {**BOTH, "log3": [*range(1, 8)]}
    assert not bed.problems


def test_a_file_is_shared_only_up_to_a_size(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(bed)
    monkeypatch.setattr(work, "MAX_SHARED_BYTES", 60_000)
    bed.round()
    assert 1 < len(bed.files()) < len(LOGS)
    assert found(bed) == BOTH


def test_an_object_store_is_asked_only_for_the_part(bed: Bed) -> None:
    with object_store("lake") as options:
        bed.lake = Lake.at("s3://lake/here", **options)
        fill(bed)
        bed.round()
        assert len(bed.files()) == 1
        assert found(bed) == BOTH
        copies = sorted(path.stat().st_size for path in (bed.root / "cache").glob("*.arrow"))
        assert copies == sorted(entry.size for entry in bed.entries())
        with bed.engine() as engine:
            engine.log("log3").delete(seqs=[1]).wait()
        bed.round()
        assert found(bed) == {**BOTH, "log3": [2]}
        assert bed.files() == used(bed)
    assert not bed.problems


@pytest.mark.parametrize("how", ["a record", "a log"])
def test_what_is_erased_in_one_log_is_in_no_file(bed: Bed, how: str) -> None:
    fill(bed)
    bed.append(document(9, service="doomed"), name="log3")
    bed.round()
    assert bed.grep(b"doomed")
    before = bed.files()
    with bed.engine() as engine:
        if how == "a record":
            engine.log("log3").delete(seqs=[3]).wait()
        else:
            engine.log("log3").drop().wait()
    bed.round()
    assert bed.grep(b"doomed") == []
    assert not before & bed.files()
    assert bed.files() == used(bed)
    expected = dict(BOTH)
    if how == "a log":
        del expected["log3"]
    assert found(bed) == expected
    assert bed.counts("log4") == 2
    assert not bed.problems


def test_an_event_that_changes_no_companion_leaves_the_file(bed: Bed) -> None:
    fill(bed)
    bed.append(document(1), name="log3", keys=["a"])
    bed.round()
    with bed.engine() as engine:
        engine.log("log3").delete(key="a").wait()
    bed.round()
    files = bed.files()
    with bed.engine() as engine:
        engine.log("log3").delete(key="a").wait()
    bed.round()
    assert bed.files() == files


def test_a_log_that_is_not_searchable_any_more_loses_its_part_with_the_file(bed: Bed) -> None:
    fill(bed)
    bed.round()
    bed.reconfigure(None, name="log3")
    with bed.engine() as engine:
        engine.log("log4").delete(seqs=[1]).wait()
    bed.round()
    expected = {**BOTH, "log4": [2]}
    del expected["log3"]
    assert found(bed) == expected
    assert bed.files() == used(bed)


def test_files_with_few_companions_are_gathered(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "MAX_SPARSE_FILES", 4)
    for number, name in enumerate(LOGS):
        bed.create(name)
        bed.append(document(number), name=name)
        bed.round()
        assert len(used(bed)) < 4
    assert found(bed) == {name: [1] for name in LOGS}
    assert bed.counts("log3") == 1
    assert not bed.problems


def test_a_damaged_part_is_built_again_and_the_others_stay(bed: Bed) -> None:
    fill(bed)
    bed.round()
    (entry,) = (each for each in bed.entries() if each.info.log == "log3")
    part = part_of(entry.path)
    assert part is not None
    path = bed.lake.directory / part.file
    content = bytearray(path.read_bytes())
    content[part.first : part.first + part.size] = bytes(part.size)
    path.write_bytes(content)
    bed.fill(1, 3, name="log3")
    bed.round()
    bed.round()
    assert found(bed) == {**BOTH, "log3": [1, 2, 3, 4, 5]}
    assert {log for log, _, _ in bed.problems} == {"log3"}


def test_a_file_that_ends_too_early_is_reported(bed: Bed) -> None:
    fill(bed)
    bed.round()
    last = max((part for entry in bed.entries() if (part := part_of(entry.path))), key=lambda part: part.first)
    path = bed.lake.directory / last.file
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(Exception, match="expected at least"):
        work.opened(bed.lake, last.path)


def test_a_path_names_a_part_or_a_whole_file() -> None:
    part = FilePart("pieces/shared/ab.arrow", 64, 100)
    assert part_of(part.path) == part
    assert file_of(part.path) == part.file
    assert part_of("pieces/7/ab.arrow") is None
    assert file_of("pieces/7/ab.arrow") == "pieces/7/ab.arrow"
