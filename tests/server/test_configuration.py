"""Settings reach a real server: from the environment, from a file, and from options."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.server_fork import ServerFork
from support.topics_client import Client, eventually

from strandline.server.settings import VARIABLES


class Serving:
    """``strandline serve`` with exactly these options and variables."""

    def __init__(self, directory: Path, options: list[str], environment: dict[str, str]) -> None:
        self.port_file = directory / "port"
        self.log_file = directory / "log"
        clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        self.process = ServerFork(["serve", *options], clean | environment, self.log_file, directory=directory)

    def client(self, key: str = "") -> Client:
        eventually(lambda: self.port_file.exists() or self.process.poll() is not None, 30)
        assert self.process.poll() is None, self.log()
        client = Client(f"http://{self.port_file.read_text().strip()}", key)
        eventually(lambda: client.request("GET", "/v0/ready").status_code == 200, 30)
        return client

    def log(self) -> str:
        return self.log_file.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture
def endings() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(directory: Path, endings: ExitStack, *options: str, **environment: str) -> Serving:
    serving = Serving(directory, list(options), environment)
    endings.callback(serving.end)
    return serving


def test_everything_by_environment(tmp_path: Path, endings: ExitStack) -> None:
    serving = serve(
        tmp_path,
        endings,
        TOPICS_HOST="127.0.0.1:0",
        TOPICS_PORT_FILE=str(tmp_path / "port"),
        TOPICS_DATA_DIR=str(tmp_path / "by-environment"),
        TOPICS_API_KEYS="secret",
        TOPICS_MAX_TOPICS="1",
        TOPICS_MAX_BATCH_RECORDS="2",
        TOPICS_MAX_LIMIT="1",
    )
    client = serving.client("secret")
    client.write("a", [1, 2])
    assert len(client.diff("a", limit=10)["records"]) == 1
    assert client.refused("PUT", "/v0/topics/b", {}, status=429)["detail"] == {"limit": "max_topics", "max": 1}
    assert client.refused("POST", "/v0/topics/a", {"records": [{"data": 1}] * 3}, status=400)["detail"]["max"] == 2
    Client(client.url).refused("GET", "/v0/topics", status=401)
    assert (tmp_path / "by-environment").is_dir()


def test_a_file_below_the_environment_below_options(tmp_path: Path, endings: ExitStack) -> None:
    config = tmp_path / "strandline.toml"
    config.write_text(
        f'''
        [server]
        port = 1
        port_file = "{tmp_path / "port"}"
        api_keys = ["filed", "reader:read"]
        [limits]
        max_topics = 1
        max_routers = 1
        [topics]
        max_limit = 3
        [storage]
        data_dir = "by-file"
        '''
    )
    serving = serve(
        tmp_path,
        endings,
        "--config", str(config), "--port", "0", "--data", "by-option",
        TOPICS_MAX_LIMIT="2", TOPICS_PORT="2",
    )  # fmt: skip
    client = serving.client("filed")
    client.write("a", [1, 2, 3, 4])
    assert len(client.diff("a")["records"]) == 2
    client.refused("PUT", "/v0/topics/b", {}, status=429)
    Client(client.url, "reader").refused("PUT", "/v0/topics/a", {}, status=403)
    assert (tmp_path / "by-option").is_dir()
    assert not (tmp_path / "by-file").exists()


def test_the_printed_settings_are_those_that_would_be_used(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "strandline", "serve", "--print-config", "--port", "0"]
    printed = subprocess.run(
        command, env=clean | {"TOPICS_MAX_TOPICS": "7", "TOPICS_API_KEYS": "hush:read"}, capture_output=True, text=True
    )
    assert printed.returncode == 0
    assert "max_logs = 7" in printed.stdout
    assert "port = 0" in printed.stdout
    assert "hush" not in printed.stdout


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ([], {"TOPICS_PORT": "seventy"}, "TOPICS_PORT is 'seventy'"),
        ([], {"TOPICS_MAX_TOPICS": "-1"}, "TOPICS_MAX_TOPICS is '-1'"),
        ([], {"TOPICS_MAX_BODY_BYTES": "0"}, "TOPICS_MAX_BODY_BYTES is '0'"),
        ([], {"STRANDLINE_PROT": "1"}, "unknown setting 'STRANDLINE_PROT'; did you mean 'STRANDLINE_PORT'?"),
        (["--port", "70000"], {}, "--port is 70000"),
        (["--config", "absent.toml"], {}, "cannot read absent.toml"),
        (["--log-level", "loud"], {}, "--log-level is 'loud'"),
    ],
)
def test_settings_that_make_no_sense_are_told_and_nothing_is_served(
    tmp_path: Path, endings: ExitStack, options: list[str], environment: dict[str, str], message: str
) -> None:
    serving = serve(tmp_path, endings, *options, **environment)
    assert serving.process.wait(30) == 2
    assert serving.log().startswith(f"strandline: {message}")
    assert not (tmp_path / "data").exists()


def test_variables_without_meaning_are_told_and_do_not_matter(tmp_path: Path, endings: ExitStack) -> None:
    serving = serve(
        tmp_path,
        endings,
        "--port", "0", "--port-file", str(tmp_path / "port"),
        TOPICS_WAL_SHARDS="4",
    )  # fmt: skip
    serving.client().put("a")
    assert "TOPICS_WAL_SHARDS has no effect" in serving.log()
    assert (tmp_path / "data").is_dir()


def test_zero_switches_a_cap_off(tmp_path: Path, endings: ExitStack) -> None:
    serving = serve(
        tmp_path,
        endings,
        "--port", "0", "--port-file", str(tmp_path / "port"),
        TOPICS_MAX_TOPICS="0", TOPICS_MAX_WATCH_SESSIONS="0", TOPICS_MAX_SSE_CONNECTIONS="0",
    )  # fmt: skip
    client = serving.client()
    client.queue("jobs")
    client.call("POST", "/v0/watch", {"topics": {"jobs": {}}})
    with client.events("/v0/topics/jobs/work?node=n"):
        pass


def test_a_port_that_is_taken_is_told(tmp_path: Path, endings: ExitStack) -> None:
    first = serve(tmp_path, endings, "--port", "0", "--port-file", str(tmp_path / "port"))
    address = first.client().url.removeprefix("http://")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    second = serve(elsewhere, endings, "--host", address)
    assert second.process.wait(30) == 1
    assert f"cannot listen on {address}: Address already in use; choose another address" in second.log()
