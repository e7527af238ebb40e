from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from support.command_line import app
from support.server_process import START_SECONDS, STOP_SECONDS
from support.streams_client import StreamsClient
from support.topics_client import eventually
from typer.testing import CliRunner, Result

from strandline.server.pipeline.supervisor import Program
from strandline.server.settings import OPTIONS, SETTINGS, VARIABLES, Settings
from strandline.service.access import Keys


class Server:
    """Stands in for the real one: takes down what it is told to serve, and what it could read in its environment."""

    def __init__(self) -> None:
        self.served: list[Settings] = []
        self.programs: list[Program | None] = []
        self.environment: dict[str, str] = {}
        self.exit_code = 0

    def run(self, settings: Settings, program: Program | None) -> int:
        self.served.append(settings)
        self.programs.append(program)
        self.environment = dict(os.environ)
        return self.exit_code


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    server = Server()
    monkeypatch.setitem(sys.modules, "strandline.server.run", SimpleNamespace(run=server.run))  # type: ignore[misc]
    return server


def call(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(app, ["serve", *map(str, arguments)], env=environment)


def test_without_options_it_serves_with_the_defaults(server: Server) -> None:
    assert call().exit_code == 0
    assert server.served == [Settings()]


def test_options_reach_the_server(server: Server, tmp_path: Path) -> None:
    result = call(
        "--host", "localhost", "--port", 0, "--port-file", tmp_path / "port", "--data", tmp_path / "data",
        "--no-fast-lane", "--log-level", "debug",
    )  # fmt: skip
    assert (result.exit_code, result.output) == (0, "")
    (settings,) = server.served
    assert (settings.server.host, settings.server.port) == ("localhost", 0)
    assert settings.server.port_file == str(tmp_path / "port")
    assert settings.storage.data_dir == str(tmp_path / "data")
    assert (settings.server.fast_lane, settings.server.log_level) == (False, "debug")


def test_the_server_learns_how_to_run_the_pipeline(server: Server, tmp_path: Path) -> None:
    call("--data", tmp_path, "--lake", "s3://bucket/lake", TOPICS_COLD_DIR="s3://bucket/cold")
    (program,) = server.programs
    assert program is not None
    assert list(program.command[:6]) == [sys.executable, "-m", "strandline", "pipeline", "run", "--supervised"]
    assert list(program.command[6:]) == [
        "--data", str(tmp_path), "--lake", "s3://bucket/lake", "--master", "local[*]",
        "--conf", "spark.driver.memory=1g", "--cold", "s3://bucket/cold",
    ]  # fmt: skip
    assert isinstance(program.missing(), list)


def test_spark_connect_is_reached_by_its_own_option(server: Server) -> None:
    call(STRANDLINE_PIPELINE_MASTER="sc://cluster:15002")
    (program,) = server.programs
    assert program is not None
    assert list(program.command[-2:]) == ["--remote", "sc://cluster:15002"]


def test_without_a_pipeline_there_is_nothing_to_run(server: Server) -> None:
    call("--pipeline", "off")
    assert server.programs == [None]


def test_options_are_above_variables_and_variables_above_the_file(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "strandline.toml"
    config.write_text("[server]\nport = 1\nfast_lane = false\n[limits]\nmax_topics = 1\nmax_routers = 1\n")
    call("--config", config, "--port", 3, TOPICS_PORT="2", TOPICS_MAX_TOPICS="2")
    (settings,) = server.served
    assert (settings.server.port, settings.limits.max_logs, settings.limits.max_routers) == (3, 2, 1)
    assert not settings.server.fast_lane


def test_the_exit_code_is_the_servers(server: Server) -> None:
    server.exit_code = 1
    assert call().exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "70000"], "--port is 70000; expected a port number from 0 to 65535; 0 takes a free port"),
        (["--log-level", "loud"], "--log-level is 'loud'; expected debug, info, warning, error or critical"),
        (["--data", ""], "--data is ''; expected the path of a directory"),
        (["--config", "absent.toml"], "cannot read absent.toml: No such file or directory"),
    ],
)
def test_bad_settings_are_one_line_and_exit_code_2(server: Server, arguments: list[str], message: str) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"strandline: {message}\n")
    assert server.served == []


def test_it_does_not_serve_strangers_without_keys(server: Server) -> None:
    result = call("--host", "0.0.0.0")
    assert result.exit_code == 2
    assert result.stderr.startswith("strandline: refusing to listen on 0.0.0.0 without API keys")
    assert server.served == []
    assert call("--host", "0.0.0.0", TOPICS_ALLOW_INSECURE_NO_AUTH="1").exit_code == 0
    assert call("--host", "0.0.0.0", TOPICS_API_KEYS="secret").exit_code == 0


@pytest.mark.parametrize("variable", ["STRANDLINE_API_KEYS", "TOPICS_API_KEYS"])
def test_plain_keys_do_not_stay_in_the_environment(server: Server, variable: str) -> None:
    call(**{variable: "hush:read"}, TOPICS_PORT="0")
    assert server.served[0].server.api_keys == Keys.parse("hush:read")
    assert variable not in server.environment
    assert server.environment["TOPICS_PORT"] == "0"


def test_what_has_no_effect_is_told(server: Server) -> None:
    result = call(TOPICS_WAL_SHARDS="4")
    assert result.exit_code == 0
    assert result.stderr.startswith("strandline: warning: TOPICS_WAL_SHARDS has no effect because ")


def test_an_unknown_variable_is_refused_with_the_nearest_one(server: Server) -> None:
    result = call(STRANDLINE_MAX_TOPCS="5")
    message = "unknown setting 'STRANDLINE_MAX_TOPCS'; did you mean 'STRANDLINE_MAX_TOPICS'?"
    assert (result.exit_code, result.stderr, server.served) == (2, f"strandline: {message}\n", [])


def test_the_help_of_an_option_is_the_sentence_of_its_setting() -> None:
    text = " ".join(CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "500"}).output.split())
    for option, name in OPTIONS.items():
        if option != "--no-fast-lane":
            assert f"{SETTINGS[name].sentence}" in text, option
    assert "Port to listen on; 0 takes a free port. Default: 4000." in text


def test_the_settings_can_be_printed_instead_of_served(server: Server, tmp_path: Path) -> None:
    result = call("--print-config", "--host", "::", "--port", 0, TOPICS_API_KEYS="hush", TOPICS_WAL_SHARDS="4")
    assert result.exit_code == 0
    assert server.served == []
    assert "hush" not in result.output
    assert "TOPICS_WAL_SHARDS has no effect" in result.stderr
    document = tomllib.loads(result.stdout)
    assert (document["server"]["host"], document["server"]["port"]) == ("::", 0)
    config = tmp_path / "strandline.toml"
    config.write_text(result.stdout)
    assert tomllib.loads(call("--print-config", "--config", config).stdout) == document


def test_declarations_are_named_by_an_option(server: Server, tmp_path: Path) -> None:
    call("--declare", tmp_path / "polls.py")
    assert server.served[0].server.declare == str(tmp_path / "polls.py")


def test_a_configuration_of_collections_is_named_by_an_option(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "starfish.yaml"
    config.write_text(
        "version: 1\ncollections:\n  - {name: a, storagePath: a, readRoles: [public], appendOnly: true}\n"
    )
    call("--collections", config)
    assert server.served[0].collections.config_file == str(config)
    config.write_text("version: 1\ncollections:\n  - {name: a, readRoles: [public]}\n")
    result = call("--collections", config)
    assert result.exit_code == 2
    assert f'{config}: collections: collection "a" (line 3): storagePath is missing' in result.output


def test_declarations_that_cannot_be_found_are_bad_settings(tmp_path: Path) -> None:
    result = call("--declare", tmp_path / "nowhere.py", "--data", tmp_path / "data")
    assert result.exit_code == 2
    assert f"file {tmp_path / 'nowhere.py'} not found" in result.output
    assert not (tmp_path / "data").exists()


def search(url: str) -> None:
    streams = StreamsClient(url)
    streams.create("s")
    fields = {"n": {"kind": "integer", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/n"}]}}
    registry = {"schema": {"type": "object"}, "search": {"fields": fields}}
    assert streams.request("POST", "s/_schema", registry).status_code == 200
    streams.append("s", [{"n": 1}, {"n": 2}])
    assert len(streams.request("POST", "s/_search", {"q": "n:2"}).json()["hits"]) == 1
    streams.close()


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    """As a process of its own: the servers of other tests are forked. It has searched, so it has loaded DuckDB, which
    complains at the end about modules that are still there."""
    address, said = tmp_path / "port", tmp_path / "said"
    options = ["--data", tmp_path / "data", "--port", "0", "--port-file", address, "--pipeline", "off"]
    with said.open("wb") as errors:
        process = subprocess.Popen([sys.executable, "-m", "strandline", "serve", *options], stderr=errors)
    try:
        eventually(address.exists, START_SECONDS)
        url = f"http://{address.read_text().strip()}"
        eventually(lambda: httpx.get(f"{url}/v0/ready", trust_env=False).is_success, START_SECONDS)
        search(url)
        process.terminate()
        assert process.wait(STOP_SECONDS) == 0
        assert "received SIGTERM" in said.read_text()
        assert "leaked" not in said.read_text()
    finally:
        process.kill()
        process.wait()
    lines = said.read_text().splitlines()
    assert all("strandline" in line for line in lines), lines
