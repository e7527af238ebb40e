from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import app
from support.file_systems import fill_up, small_disk
from typer.testing import CliRunner, Result

from strandline import __version__
from strandline.engine import Batch, Engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Engine.open(tmp_path / "data", background=False) as engine:
        log = engine.create("orders").wait()
        log.append(Batch([b"one", b"two"])).wait()
        engine.seal()
        log.append(Batch.of(b"three")).wait()
    return tmp_path / "data"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_version_is_printed() -> None:
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"strandline {__version__}\n")


def test_all_commands_are_there() -> None:
    help = call("--help").stdout
    assert all(command in help for command in ("verify", "dump", "backup", "restore"))


def test_a_directory_without_problems_is_told_to_be_so(path: Path) -> None:
    result = call("verify", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "no problems found"
    assert result.stdout.startswith("1 log, 3 records, 11 bytes; ")


def test_problems_are_told_and_make_exit_code_1(path: Path) -> None:
    (path / "segments/00000001.arrow").unlink()
    result = call("verify", path)
    assert result.exit_code == 1
    assert "problem  segments/00000001.arrow: the file is missing." in result.stdout.splitlines()
    assert result.stdout.splitlines()[-1] == "1 problem"


def test_a_repair_tells_what_is_lost(path: Path) -> None:
    (path / "segments/00000001.arrow").unlink()
    result = call("verify", path, "--repair")
    assert result.exit_code == 3
    words = [line.split() for line in result.stdout.splitlines()]
    assert ["orders", "1", "to", "2", "2", "segments/00000001.arrow"] in [line[:6] for line in words]
    assert result.stdout.splitlines()[-1] == "repaired, but 2 records of 1 log were lost"
    assert call("verify", path).exit_code == 0


def test_a_report_can_be_had_as_json(path: Path) -> None:
    (path / "segments/00000001.arrow").unlink()
    found = call("verify", path, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["problems"] == ["segments/00000001.arrow: the file is missing."]
    repaired = json.loads(call("verify", path, "--repair", "--json").stdout)
    assert repaired["problems"] == []
    (loss,) = repaired["losses"]
    assert (loss["log"], loss["first"], loss["last"], loss["records"]) == ("orders", 1, 2, 2)


def test_a_directory_that_cannot_be_checked_makes_exit_code_2_and_one_line(path: Path, tmp_path: Path) -> None:
    with Engine.open(path, background=False):
        result = call("verify", path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"strandline: {path} is in use by process ")
    assert result.stderr.count("\n") == 1
    for missing in (tmp_path, tmp_path / "absent"):
        result = call("verify", missing)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"strandline: {missing} is not a data directory: it has no MANIFEST\n"
    assert not (tmp_path / "absent").exists()


def test_a_cold_tier_can_be_named(path: Path, tmp_path: Path) -> None:
    assert call("verify", path, "--cold", tmp_path / "cold").exit_code == 0
    result = call("verify", path, "--cold", "ftp://elsewhere")
    assert result.exit_code == 2
    assert result.stderr.startswith("strandline: config cold='ftp://elsewhere': ")


def test_a_file_is_printed(path: Path) -> None:
    result = call("dump", path / "journal/00000002.journal")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1].split()[:4] == ["48", "append", "epoch=1", "seqs=3"]
    assert lines[2].split() == ["record", "seq=3", "size=5", "data='three'"]


def test_a_file_is_printed_as_json_with_as_many_rows_as_wanted(path: Path) -> None:
    result = call("dump", path / "segments/00000001.arrow", "--json", "--rows", "1")
    assert result.exit_code == 0
    items = [json.loads(line) for line in result.stdout.splitlines()]
    assert [item["kind"] for item in items] == ["file", "footer", "run", "block", "row"]
    assert items[-1]["facts"]["data"] == "'one'"


def test_a_file_that_is_not_there_cannot_be_printed(path: Path) -> None:
    result = call("dump", path / "absent")
    assert result.exit_code == 2
    assert result.stderr == f"strandline: cannot read {path / 'absent'}: No such file or directory\n"


def test_a_server_does_not_start_on_a_full_disk_and_says_why(path: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        shutil.copytree(path, disk / "data")
        fill_up(disk)
        command = [sys.executable, "-m", "strandline", "serve", "--data", disk / "data", "--port", "0"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert f"cannot open the data directory {disk}/data: the disk is full (No space left on device)" in ended.stderr
    assert "Free space on that file system" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_runs_as_a_module_and_speaks_to_other_processes(path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "strandline", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("--version").stdout == f"strandline {__version__}\n"
    with Engine.open(path, background=False):
        result = run("verify", path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "is in use by" in result.stderr
    assert "Traceback" not in result.stderr
    (path / "segments/00000001.arrow").unlink()
    result = run("verify", path, "--repair")
    assert (result.returncode, result.stderr) == (3, "")
    assert run("verify", path).returncode == 0
