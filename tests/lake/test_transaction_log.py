from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_writer import Writer, table_of

from strandline.lake import table as lake_table
from strandline.lake.location import Lake
from strandline.lake.transaction_log import BrokenLog, TransactionLog

#: Of the table that these tests have: the version of its last checkpoint, and its last version.
CHECKPOINT, LATEST = 9, 12
CHECKPOINT_NAME = f"{CHECKPOINT:020d}.checkpoint.parquet"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table with two checkpoints, commits before and after them, and a file that was replaced."""
    monkeypatch.setattr("strandline.lake.table.CHECKPOINT_INTERVAL", 5)
    lake = Lake.at(tmp_path / "lake")
    for number in range(LATEST - 1):
        assert Writer(lake, f"log-{number % 3}").commit()
        if number == 3:
            snapshot = table_of(lake).snapshot()
            snapshot.commit(remove=snapshot.files()[:1])
    assert table_of(lake).snapshot().version == LATEST
    return lake


class Forgetful(dict[str, Any]):
    def __setitem__(self, name: str, value: Any) -> None:
        """Remember nothing."""


@pytest.fixture(autouse=True)
def reads_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress comes from the log, and not from what was read before."""
    monkeypatch.setattr(lake_table, "_known", Forgetful())


def log_of(lake: Lake) -> Path:
    return Path(lake.url) / "things" / "_delta_log"


def state(lake: Lake) -> tuple[dict[str, int], dict[str, int], int]:
    snapshot = table_of(lake).snapshot()
    return snapshot.progress(), snapshot.replaced(), len(snapshot.files())


def clean_up(lake: Lake) -> None:
    """Remove what the last checkpoint has, as the retention of the log does."""
    for path in log_of(lake).iterdir():
        if path.name[:1].isdigit() and int(path.name[:20]) < CHECKPOINT:
            path.unlink()


def remove_hint(log: Path) -> None:
    (log / "_last_checkpoint").unlink()


def empty_hint(log: Path) -> None:
    (log / "_last_checkpoint").write_bytes(b"")


def old_hint(log: Path) -> None:
    hint = json.loads((log / "_last_checkpoint").read_bytes())
    (log / "_last_checkpoint").write_text(json.dumps({**hint, "version": 4}))


def in_parts(log: Path) -> None:
    """The checkpoint as three files."""
    rows = pq.read_table(log / CHECKPOINT_NAME)
    third = -(-rows.num_rows // 3)
    for part in range(3):
        name = f"{CHECKPOINT:020d}.checkpoint.{part + 1:010d}.{3:010d}.parquet"
        pq.write_table(rows.slice(part * third, third), log / name)
    (log / CHECKPOINT_NAME).unlink()
    remove_hint(log)


def with_sidecars(log: Path, ending: str = "parquet") -> None:
    """The checkpoint in the second form: actions about files are in files of their own."""
    rows = pq.read_table(log / CHECKPOINT_NAME)
    is_file = [
        row["add"] is not None or row["remove"] is not None for row in rows.select(["add", "remove"]).to_pylist()
    ]
    (log / "_sidecars").mkdir()
    sidecar = f"{uuid.uuid4()}.parquet"
    pq.write_table(rows.select(["add", "remove"]).filter(pa.array(is_file)), log / "_sidecars" / sidecar)
    named = {"path": sidecar, "sizeInBytes": 1, "modificationTime": 1}
    others = [row for row in rows.to_pylist() if row["add"] is None and row["remove"] is None]
    main = log / f"{CHECKPOINT:020d}.checkpoint.{uuid.uuid4()}.{ending}"
    if ending == "json":
        lines = [{kind: action for kind, action in row.items() if action is not None} for row in others]
        main.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"sidecar": named}]))
    else:
        kinds = {"txn": [*[row["txn"] for row in others], None], "sidecar": [*[None] * len(others), named]}
        pq.write_table(pa.table(kinds), main)
    (log / CHECKPOINT_NAME).unlink()
    remove_hint(log)


@pytest.mark.parametrize("change", [None, in_parts, with_sidecars])
def test_the_files_of_a_version_are_those_that_were_added_and_not_removed(
    lake: Lake, change: Callable[[Path], None] | None
) -> None:
    expected = {file.path for file in table_of(lake).files()}
    earlier = {CHECKPOINT + 1: TransactionLog(lake, "things").files(CHECKPOINT + 1)}
    if change is not None:
        clean_up(lake)
        change(log_of(lake))
    log = TransactionLog(lake, "things")
    assert log.files(LATEST).keys() == expected
    for version, known in earlier.items():
        assert log.files(LATEST, known, version) == log.files(LATEST)


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("change", [remove_hint, empty_hint, old_hint, in_parts])
def test_the_log_is_read_whatever_the_hint_says(lake: Lake, change: Callable[[Path], None], cleaned: bool) -> None:
    before = state(lake)
    if cleaned and change is not old_hint:  # the library insists on a hint that names a checkpoint which is there
        clean_up(lake)
    change(log_of(lake))
    assert state(lake) == before
    assert Writer(lake, "log-1").commit()
    assert state(lake)[0]["log-1"] == before[0]["log-1"] + 2


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_checkpoint_with_sidecars_is_read(lake: Lake, ending: str) -> None:
    progress, replaced, files = state(lake)
    assert len(replaced) == 1
    clean_up(lake)
    with_sidecars(log_of(lake), ending)
    log = TransactionLog(lake, "things")
    assert log.latest == LATEST
    assert {each["appId"]: each["version"] for each in log.actions("txn", LATEST)} == progress
    assert [each["path"] for each in log.actions("remove", LATEST)] == list(replaced)
    assert len(list(log.actions("add", LATEST))) == files
    next((log_of(lake) / "_sidecars").iterdir()).unlink()
    with pytest.raises(BrokenLog, match=r"_sidecars/.* is missing"):
        list(log.actions("add", LATEST))


def test_an_incomplete_checkpoint_does_not_count(lake: Lake) -> None:
    before = state(lake)
    in_parts(log_of(lake))
    (log_of(lake) / f"{CHECKPOINT:020d}.checkpoint.{2:010d}.{3:010d}.parquet").unlink()
    assert TransactionLog(lake, "things").latest == LATEST
    # The commits from the checkpoint before on are there.
    assert table_of(lake).progress() == before[0]


def test_progress_is_never_forgotten_where_the_log_is_incomplete(lake: Lake) -> None:
    """A round that takes what it cannot read for nothing would append everything again."""
    clean_up(lake)
    (log_of(lake) / CHECKPOINT_NAME).unlink()
    with pytest.raises(BrokenLog, match="things is incomplete: the commits of versions 0, 1, 2 and more are missing"):
        table_of(lake).progress()
    for path in log_of(lake).iterdir():
        if path.name != "_last_checkpoint":
            path.unlink()
    with pytest.raises(BrokenLog, match="has the file _last_checkpoint but no commit"):
        table_of(lake).progress()


def test_a_damaged_checkpoint_is_named(lake: Lake) -> None:
    (log_of(lake) / CHECKPOINT_NAME).write_bytes(b"")
    with pytest.raises(BrokenLog, match=f"{CHECKPOINT_NAME} cannot be read"):
        table_of(lake).progress()


def test_a_commit_that_goes_while_the_log_is_read_is_no_empty_one(lake: Lake) -> None:
    log, snapshot = TransactionLog(lake, "things"), table_of(lake).snapshot()
    (log_of(lake) / f"{LATEST:020d}.json").unlink()
    with pytest.raises(BrokenLog, match=f"{LATEST:020d}.json is missing"):
        list(log.actions("txn", LATEST))
    with pytest.raises(BrokenLog, match=f"the commits of versions {LATEST} are missing"):
        snapshot.progress()


def test_old_commits_that_are_cleaned_up_meanwhile_are_read_from_the_checkpoint(lake: Lake) -> None:
    before = state(lake)[0]
    checkpoint = (log_of(lake) / CHECKPOINT_NAME).read_bytes()
    (log_of(lake) / CHECKPOINT_NAME).unlink()
    snapshot = table_of(lake).snapshot()
    (log_of(lake) / CHECKPOINT_NAME).write_bytes(checkpoint)
    clean_up(lake)
    assert snapshot.progress() == before


def test_a_table_with_files_and_without_progress_is_refused(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    Writer(lake).commit()
    first = log_of(lake) / f"{1:020d}.json"
    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join(line for line in lines if '"txn"' not in line))
    with pytest.raises(BrokenLog, match="things has 1 files but no progress"):
        table_of(lake).progress()
