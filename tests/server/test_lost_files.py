"""Files of a data directory are lost, or the whole directory, over real servers: nothing is lost silently."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.file_systems import bound
from support.server_fork import ServerFork
from support.server_process import ServerProcess, StartServer
from support.topics_client import eventually

from strandline.engine.journal.frame import FILE_HEADER
from strandline.engine.journal.recovery import SEQ_LEAP
from strandline.server.run import DAMAGED

#: Records that were acknowledged before the server was killed, in each of three journal files.
EACH = 20


def write(server: ServerProcess, topic: str = "t") -> httpx.Response:
    url, body = f"{server.url}/v0/topics/{topic}", {"records": [{"data": 1}]}
    return httpx.post(url, json=body, timeout=20, trust_env=False, verify=False)


def configure(server: ServerProcess, topic: str, durability: str) -> None:
    url = f"{server.url}/v0/topics/{topic}"
    answer = httpx.put(url, json={"durability": durability}, trust_env=False, verify=False)
    assert answer.status_code in (200, 201)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with three journal files. Its server was killed three times."""
    server = ServerProcess(tmp_path_factory.mktemp("killed") / "data")
    for number in range(3):
        server.start()
        try:
            if not number:
                configure(server, "t", "fsync")
            for _ in range(EACH):
                assert write(server).status_code == 200
        finally:
            server.kill()
    return server.data


def journals(data: Path) -> list[Path]:
    return sorted((data / "journal").iterdir())


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 3 // 4)


def remove_all(data: Path) -> None:
    for path in journals(data):
        path.unlink()


def empty(data: Path) -> None:
    for path in data.iterdir():
        if path.name != "LOCK":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


#: What is lost, what the server says of it, and what the next seq is after a repair; None: the log itself is lost.
DAMAGE: dict[str, tuple[Callable[[Path], object], str, int | None]] = {
    "the newest file": (lambda data: journals(data)[-1].unlink(), "00000003.journal: the file is missing", 0),
    "the end of the first file": (lambda data: cut(journals(data)[0]), "it was truncated", 3 * EACH + 1),
    "all journal files": (remove_all, "the files from here to number 3 are missing", None),
}


def digests(data: Path) -> dict[str, str]:
    files = [path for path in data.rglob("*") if path.is_file() and path.name != "LOCK"]
    return {str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def verify(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    log = data.parent / "verify.log"
    log.unlink(missing_ok=True)
    code = ServerFork(["verify", *options, str(data)], dict(os.environ), log).wait(60)
    return subprocess.CompletedProcess("verify", code, log.read_text())


def refusal(server: ServerProcess) -> str:
    """Why the server does not start."""
    server.launch()
    assert server.wait() == DAMAGED
    return server.log()


@pytest.mark.parametrize("what", DAMAGE)
def test_lost_journal_files_are_named_and_their_seqs_not_used_again(
    what: str, killed: Path, tmp_path: Path, start_server: StartServer
) -> None:
    damage, told, next_seq = DAMAGE[what]
    data = shutil.copytree(killed, tmp_path / "data")
    damage(data)
    before = digests(data)
    verified = verify(data)
    assert verified.returncode == 1
    assert told in verified.stdout
    server = ServerProcess(data)
    said = refusal(server)
    assert told in said
    assert "strandline verify --repair" in said
    assert digests(data) == before, "neither has changed anything"
    repaired = verify(data, "--repair")
    assert (repaired.returncode, "repaired, but " in repaired.stdout) == (3, True)
    server = start_server(data=data)
    answer = write(server).json()
    if next_seq is None:
        assert answer["created"]
    else:
        # Nobody knows how many records were in the newest file.
        assert answer["first_seq"] == next_seq or (not next_seq and answer["first_seq"] > SEQ_LEAP)


#: Records that were acknowledged, and flushed, before the server was killed.
FLUSHED_RECORDS = 200


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log is in the first journal file, and all of its records are in the second one."""
    server = ServerProcess(tmp_path_factory.mktemp("killed-once") / "data")
    server.start()
    configure(server, "t", "fsync")
    server.stop()
    server.start()
    try:
        with httpx.Client(trust_env=False) as client:
            for _ in range(FLUSHED_RECORDS):
                answer = client.post(f"{server.url}/v0/topics/t", json={"records": [{"data": 1}]})
                assert answer.status_code == 200
    finally:
        server.kill()
    return server.data


#: What is left of the newest file, and what the server says of it.
NEWEST: dict[str, tuple[Callable[[Path], object], str]] = {
    "its header": (lambda path: os.truncate(path, FILE_HEADER.size), "it was truncated"),
    "half": (lambda path: os.truncate(path, path.stat().st_size // 2), "it was truncated"),
    "all but a byte": (lambda path: os.truncate(path, path.stat().st_size - 1), "it was truncated: 1 of "),
    "nothing": (lambda path: path.unlink(), "the file is missing"),
}


@pytest.mark.parametrize("what", NEWEST)
def test_the_newest_file_of_a_killed_server_loses_no_record_silently(
    what: str, killed_once: Path, tmp_path: Path, start_server: StartServer
) -> None:
    damage, told = NEWEST[what]
    data = shutil.copytree(killed_once, tmp_path / "data")
    damage(journals(data)[-1])
    before = digests(data)
    verified = verify(data)
    assert (verified.returncode, told in verified.stdout) == (1, True)
    assert told in refusal(ServerProcess(data))
    assert digests(data) == before, "neither has changed anything"
    repaired = verify(data, "--repair")
    assert (repaired.returncode, "repaired, but " in repaired.stdout) == (3, True)
    assert verify(data).returncode == 0
    assert write(start_server(data=data)).json()["first_seq"] > SEQ_LEAP


def test_a_killed_server_starts_if_nothing_is_cut_off(
    killed_once: Path, tmp_path: Path, start_server: StartServer
) -> None:
    data = shutil.copytree(killed_once, tmp_path / "data")
    assert verify(data).returncode == 0
    assert write(start_server(data=data)).json()["first_seq"] == FLUSHED_RECORDS + 1


def test_an_emptied_directory_is_not_taken_for_a_new_one(killed: Path, tmp_path: Path) -> None:
    data = shutil.copytree(killed, tmp_path / "data")
    empty(data)
    assert "LOCK says that this directory had data" in refusal(ServerProcess(data))
    assert [path.name for path in data.iterdir()] == ["LOCK"]


@contextmanager
def copied(data: Path) -> Iterator[None]:
    shutil.copytree(data, data.with_name("copy"))
    data.rename(data.with_name("elsewhere"))
    data.with_name("copy").rename(data)
    yield


@contextmanager
def mounted_over(data: Path) -> Iterator[None]:
    data.with_name("other").mkdir()
    with bound(data.with_name("other"), data):
        yield


@pytest.mark.parametrize("replaced", [copied, mounted_over])
def test_a_server_whose_directory_is_replaced_acknowledges_nothing_more(
    replaced: Callable[[Path], object], tmp_path: Path, start_server: StartServer
) -> None:
    server = start_server(data=tmp_path / "data")
    for durability in ("fsync", "memory"):
        configure(server, durability, durability)
        assert write(server, durability).status_code == 200
    with replaced(server.data):  # type: ignore[attr-defined]
        assert write(server, "fsync").status_code == 503
        eventually(lambda: write(server, "memory").status_code == 503)
        assert not server.is_ready()
        errors = [line for line in server.log().splitlines() if " ERROR " in line]
        assert [("removed or replaced" in line) for line in errors] == [True]
        if replaced is copied:
            other = start_server(data=server.data)
            assert write(other, "fsync").status_code in (200, 201)
            manifest = digests(server.data)["MANIFEST"]
            server.stop()
            assert digests(server.data)["MANIFEST"] == manifest, "it is the other server's by now"
            assert write(other, "fsync").status_code == 200
            other.stop()
        else:
            server.stop()
