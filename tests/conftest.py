"""Fixtures that the tests of every protocol share: real server processes and a client."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support import distribution
from support.memory_directory import is_about_disks, memory_directory
from support.minio_server import find_minio
from support.server_process import ServerProcess, Share, StartServer
from support.topics_client import Client
from xdist.scheduler import LoadGroupScheduling

from bench.minio import MinioServer, minio_server

# The tests start hundreds of programs that import the same modules: these are compiled once, also where the environment
# says that compiled modules are not to be kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that runs the tests in the background lets them ignore Ctrl-C, and with them every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on who else uses the machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

LANES = ["fast", "asgi"]
_numbers = count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Servers have the fast lane; tests marked with ``both_lanes`` run once per lane."""
    if "lane" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("both_lanes") is not None
        metafunc.parametrize("lane", LANES if marked else LANES[:1], indirect=True, scope="session")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling:
    return distribution.FileScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stable: nothing else about their order changes."""
    items.sort(key=lambda item: distribution.place(item.nodeid))


@pytest.fixture(scope="session")
def lane(request: pytest.FixtureRequest) -> str:
    """Which way requests take through the server: ``fast``, or ``asgi`` as well where a test is marked with it.

    The answers of both lanes to every route are compared in ``tests/server/test_lanes.py`` and
    ``test_lane_routes.py``."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory, or on the disk where there is no room, shared by all tests: use names of your own."""
    with memory_directory() as directory:
        yield directory or tmp_path_factory.mktemp("memory")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty directory: in memory, unless the test is about disks. A test that fails leaves it on the disk."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    if is_about_disks(request.path, request.fixturenames):
        yield tmp_path_factory.mktemp(name)
        return
    directory = memory / f"{name}{next(_numbers)}"
    directory.mkdir()
    failed_before = request.session.testsfailed
    yield directory
    if request.session.testsfailed > failed_before:
        with suppress(shutil.Error):  # sockets cannot be copied
            shutil.copytree(directory, tmp_path_factory.mktemp(name), symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def _temporary_files(request: pytest.FixtureRequest, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary directories of this process are where ``tmp_path`` is."""
    if not is_about_disks(request.path, request.fixturenames):
        monkeypatch.setattr(tempfile, "tempdir", str(memory))


@pytest.fixture(scope="session")
def share(memory: Path) -> Iterator[Share]:
    """Start a server for the rest of the session: ``share(process)``. The second one for the same data is the first.

    Without it, the server of a lane would end whenever a test over the other lane comes."""
    shared: dict[Path, ServerProcess] = {}

    def share(process: ServerProcess) -> ServerProcess:
        return shared.get(process.data) or shared.setdefault(process.data, process.start())

    yield share
    for process in shared.values():
        process.end()


@pytest.fixture(scope="session")
def server(lane: str, share: Share, memory: Path) -> ServerProcess:
    """A server with the default settings, shared by all tests: use names of your own, and never stop it.

    Webhooks may go to this machine, where the tests receive them."""
    data = memory / f"server-{lane}"
    return share(ServerProcess(data, fast_lane=lane == "fast", settings={"webhook_allow_loopback": True}))


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """MinIO with a bucket that all tests share: use a prefix of your own."""
    with minio_server(tmp_path_factory.mktemp("minio") / "data", find_minio()) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of the topics of ``server``."""
    client = Client(server.url)
    yield client
    client.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start a server of one's own: ``start_server(max_claim=5, keys="secret:rw", data=path, lane="asgi")``.

    ``settings`` are named as in the server's settings. Without ``data`` each one gets a new directory. All are stopped
    at the end of the test; until then the test may stop, kill and start them as it likes.
    """
    numbers = count()

    def start(
        *,
        keys: str | None = None,
        data: Path | None = None,
        lane: str = "fast",
        ready: bool = True,
        open_files: int | None = None,
        **settings: Any,
    ) -> ServerProcess:
        process = ServerProcess(
            data or tmp_path / f"data-{next(numbers)}",
            fast_lane=lane == "fast",
            keys=keys,
            settings=settings,
            open_files=open_files,
        )
        endings.callback(process.end)
        if ready:
            process.start()
        else:
            process.launch()
        return process

    with ExitStack() as endings:
        yield start
