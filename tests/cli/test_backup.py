from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from support.command_line import app
from typer.testing import CliRunner

from strandline.cli.times import parse_time
from strandline.engine import Batch, Engine
from strandline.engine.backup.pool import format_time

#: Has the directory open and appends until it is told to end; says what is written before it is asked for more.
SERVER = """
import sys
from strandline.engine import Batch, Config, Engine, Options

with Engine.open(sys.argv[1], Options(journal_bytes=20_000)) as engine:
    log = engine.create("a", Config(durability="fsync")).wait()
    for line in sys.stdin:
        for number in range(int(line)):
            log.append(Batch.of(b"x" * 200)).wait()
        print(log.head, flush=True)
"""


def strandline(*arguments: str | Path) -> tuple[int, str, str]:
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return outcome.exit_code, outcome.stdout, outcome.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with Engine.open(tmp_path / "data", background=False) as engine:
        log = engine.create("a").wait()
        log.append(Batch.of(b"1")).wait()
        engine.seal()
        log.append(Batch.of(b"2")).wait()
    return tmp_path / "data"


def content(path: Path) -> list[bytes]:
    with Engine.open(path, background=False) as engine:
        return [record.data for record in engine.log("a").read()]


def test_back_up_list_and_restore(data: Path, tmp_path: Path) -> None:
    code, out, err = strandline("backup", data, tmp_path / "pool")
    assert (code, err) == (0, "")
    assert "3 files" in out
    assert "copied 3 files" in out
    code, out, _ = strandline("restore", tmp_path / "pool", "--list")
    assert code == 0
    assert out.splitlines()[0].split() == ["backup", "files", "size", "history"]
    assert "times that can be restored:" in out
    code, out, _ = strandline("restore", tmp_path / "pool", tmp_path / "again")
    assert code == 0
    assert "1 segment, 1 journal file" in out
    assert content(tmp_path / "again") == [b"1", b"2"]


def test_programs_get_json(data: Path, tmp_path: Path) -> None:
    report = json.loads(strandline("backup", data, tmp_path / "pool", "--json")[1])
    assert (report["files"], report["copied_files"], report["damage"]) == (3, 3, [])
    listing = json.loads(strandline("restore", tmp_path / "pool", "--list", "--json")[1])
    assert [one["name"] for one in listing["backups"]] == [report["name"]]
    assert listing["intervals"][0]["history"] == report["history"]
    report = json.loads(strandline("restore", tmp_path / "pool", tmp_path / "again", "--json")[1])
    assert report["path"] == str(tmp_path / "again")
    assert report["at"] is None


def test_a_time_may_be_given_in_words_and_in_milliseconds(data: Path, tmp_path: Path) -> None:
    strandline("backup", data, tmp_path / "pool")
    start = json.loads(strandline("restore", tmp_path / "pool", "--list", "--json")[1])["intervals"][0]["start"]
    for name, time in (("words", format_time(start)), ("number", str(start))):
        assert strandline("restore", tmp_path / "pool", tmp_path / name, "--at", time)[0] == 0
        assert content(tmp_path / name)[0] == b"1"
    code, out, err = strandline("restore", tmp_path / "pool", tmp_path / "never", "--at", "2001-01-01")
    assert (code, out) == (1, "")
    assert err.startswith("strandline: 2001-01-01T00:00:00.000Z cannot be restored; the backups cover: ")
    assert err.count("\n") == 1


def test_old_backups_are_removed_on_request(data: Path, tmp_path: Path) -> None:
    for _ in range(3):
        out = strandline("backup", data, tmp_path / "pool", "--keep", "1")[1]
    assert "removed 1 old backup and 0 files" in out
    assert len(list((tmp_path / "pool" / "backups").iterdir())) == 1


def test_what_goes_wrong_is_one_line_and_exit_code_1(data: Path, tmp_path: Path) -> None:
    strandline("backup", data, tmp_path / "pool")
    for arguments in (
        ["backup", tmp_path / "nothing", tmp_path / "pool"],
        ["restore", tmp_path / "nothing", tmp_path / "again"],
        ["restore", tmp_path / "nothing", "--list"],
        ["restore", tmp_path / "pool", data],
    ):
        code, out, err = strandline(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("strandline: ")
        assert err.count("\n") == 1


def test_a_command_that_makes_no_sense_is_exit_code_2(data: Path, tmp_path: Path) -> None:
    for arguments in (
        ["restore", tmp_path / "pool"],
        ["restore", tmp_path / "pool", tmp_path / "again", "--at", "noon"],
        ["backup", data],
        ["backup", data, tmp_path / "pool", "--keep", "0"],
        ["backup", data, data / "pool"],
        ["backup", data, "gopher://pool"],
    ):
        assert strandline(*arguments)[0] == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("20231114T221320.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123999Z", 1_700_000_000_123),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", int(datetime(2023, 11, 14, tzinfo=UTC).timestamp() * 1000)),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "noon", "-5", "1969-12-31", "9" * 20, "２０２３"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_time(text)


def test_another_process_has_the_directory_open_and_goes_on_writing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "strandline.cli.main"]
    data, pool = tmp_path / "data", tmp_path / "pool"
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(data)], stdin=-1, stdout=-1, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        heads = [0]
        for number in range(4):
            server.stdin.write("300\n")
            server.stdin.flush()
            if number == 0:
                server.stdout.readline()
                heads.append(300)
            # The server is in the middle of the next 300 now.
            done = subprocess.run([*command, "backup", str(data), str(pool), "--json"], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            again = tmp_path / str(number)
            done = subprocess.run([*command, "restore", str(pool), str(again)], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            with Engine.open(again, background=False) as engine:
                page = engine.log("a").read(limit=10_000)
                assert engine.recovered.losses == []
            assert page.seqs == list(range(1, len(page) + 1))
            assert len(page) >= heads[-1]
            if number:
                heads.append(int(server.stdout.readline()))
        assert heads[-1] == 1200
    finally:
        server.stdin.close()
        server.wait()
    assert server.returncode == 0


def test_rotten_files_of_a_target_are_found_and_replaced(data: Path, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    assert strandline("backup", data, pool)[0] == 0
    code, out, _ = strandline("restore", pool, "--verify")
    assert (code, out.splitlines()[-1]) == (0, "no damage found")
    [segment] = (pool / "segments").iterdir()
    segment.write_bytes(b"\0" * segment.stat().st_size)
    code, out, _ = strandline("restore", pool, "--verify")
    assert (code, out.splitlines()[-1]) == (1, "1 damaged file")
    assert out.startswith(
        f"damaged  segments/{segment.name}: its checksum does not match the backup's description; needed by 20"
    )
    code, _, err = strandline("backup", data, pool)
    assert (code, err) == (
        0,
        f"strandline: warning: segments/{segment.name} was damaged or missing in {pool} and was copied again\n",
    )
    assert json.loads(strandline("restore", pool, "--verify", "--json")[1])["damaged"] == []
