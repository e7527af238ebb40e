"""Which server a command talks to, and contexts."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import Cli
from support.document_tables import ROOT
from support.server_process import ServerProcess, StartServer
from support.standby_server import StandbyServer
from typer.testing import Result

from strandline.cli.connection import complete_log

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.cli.connection import connect

    assert connect.__kwdefaults__ is not None
    monkeypatch.setitem(connect.__kwdefaults__, "patience", 0.0)


class Person:
    """Someone with contexts of their own, and no variables but those that are given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "strandline/contexts.json"

    def __call__(self, *arguments: str, **environment: str) -> Result:
        settings = {"STRANDLINE_URL": "", "XDG_CONFIG_HOME": str(self.directory), **environment}
        return Cli("")(*arguments, **settings)

    def said(self, *arguments: str, **environment: str) -> str:
        result = self(*arguments, **environment)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    def fails(self, code: int, *arguments: str, **environment: str) -> str:
        result = self(*arguments, **environment)
        assert result.exit_code == code, result.output
        return " ".join(result.stderr.split())


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_options_work_before_and_after_the_command(cli: Cli, cli_server: ServerProcess, person: Person) -> None:
    url = cli_server.url
    for words in (
        ("--url", url, "log", "ls", "--limit", "1"),
        ("log", "ls", "--limit", "1", "--url", url),
        # The nearer one counts.
        ("--url", NOBODY, "log", "ls", "--limit", "1", "--url", url),
        ("--url", url, "export", "--to", str(person.directory / "exported"), "--format", "jsonl"),
    ):
        result = person(*words)
        assert result.exit_code in (0, 3), result.output
        assert "specify" not in result.output
    assert NOBODY in person.fails(4, "--url", NOBODY, "log", "ls", STRANDLINE_URL=url)
    assert "does not talk to a server" in person.fails(2, "--url", url, "context", "ls")
    assert "does not talk to a server" in person.fails(2, "--context", "a", "dump", "file")


def test_an_api_key_before_the_command(start_server: StartServer, person: Person) -> None:
    url = start_server(keys="secret").url
    person.said("--url", url, "--api-key", "secret", "log", "append", "a", "1")
    person.fails(5, "--url", url, "--api-key", "wrong", "log", "ls", STRANDLINE_KEY="secret")
    assert person.said("--url", url, "log", "ls", "--json", STRANDLINE_KEY="secret")
    # A context has both.
    person.said("context", "add", "here", url, "--api-key", "secret")
    assert "a" in person.said("--context", "here", "log", "ls")
    assert "a" in person.said("log", "ls", STRANDLINE_CONTEXT="here")
    person.said("context", "use", "here")
    assert "a" in person.said("log", "ls")
    # Its key goes nowhere else, and other keys go before it.
    assert "set --api-key" in person.fails(5, "--url", url, "log", "ls")
    assert "set --api-key" in person.fails(5, "log", "ls", STRANDLINE_URL=url)
    person.fails(5, "log", "ls", "--api-key", "wrong")
    person.fails(5, "--api-key", "wrong", "log", "ls")


def test_a_server_with_standbys_has_several_urls(cli_server: ServerProcess, person: Person) -> None:
    url, standby = cli_server.url, StandbyServer()
    several = f"{NOBODY},{standby.url},{url}"
    assert "does not answer" in person.fails(4, "--url", f"{NOBODY},{url}", "ping")
    assert json.loads(person.said("info", "--json", STRANDLINE_URL=several))["url"] == url
    person.said("log", "append", "standbys", "1", "--url", several)
    person.said("context", "add", "pair", several, "--use")
    assert person.said("context", "use", "pair") == f"commands use context pair: {several}"
    assert person.said("log", "show", "standbys", "--json")
    assert person.said(
        "export", "standbys", "--to", str(person.directory / "out"), "--format", "jsonl", "--url", several
    )
    error = person.fails(4, "log", "ls", "--url", f"{NOBODY},{standby.url}")
    assert all(said in error for said in (NOBODY, standby.url, "standby"))
    assert "expected http" in person.fails(2, "log", "ls", "--url", f"{NOBODY},here")
    standby.close()


def test_contexts_are_added_listed_used_and_removed(person: Person) -> None:
    assert person.said("context", "ls") == "context  url  api key  current"
    assert not person.file.parent.exists()
    person.said("context", "add", "b", "http://b:4000", "--api-key", "secret", "--use")
    person.said("context", "add", "a", "http://a:4000")
    assert stat.S_IMODE(person.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(person.file.parent.stat().st_mode) == 0o700
    listed = json.loads(person.said("context", "ls", "--json"))
    assert listed == {
        "file": str(person.file),
        "contexts": [
            {"context": "a", "url": "http://a:4000", "api_key": False, "current": False},
            {"context": "b", "url": "http://b:4000", "api_key": True, "current": True},
        ],
    }
    assert "secret" not in person.said("context", "ls")
    assert "already exists" in person.fails(6, "context", "add", "a", "http://c:4000")
    person.said("context", "add", "a", "http://c:4000", "--replace")
    assert person.said("context", "use", "a") == "commands use context a: http://c:4000"
    assert "http://c:4000" in person.fails(4, "log", "ls")
    person.said("context", "rm", "a")
    assert "http://127.0.0.1:4000" in person.said("log", "ls", "--help")
    assert json.loads(person.said("context", "ls", "--json"))["contexts"][0]["current"] is False
    person.said("context", "use", "b")
    person.said("context", "use", "--none")
    assert json.loads(person.file.read_text())["current"] is None
    assert list(person.file.parent.iterdir()) == [person.file]


def test_bad_contexts_are_refused_and_change_nothing(person: Person) -> None:
    assert "http" in person.fails(2, "context", "add", "a", "ftp://a")
    assert "not a name of a context" in person.fails(2, "context", "add", "a b", "http://a")
    absent = "context 'absent' not found; list the names with `strandline context ls`"
    for words in (("context", "use", "absent"), ("context", "rm", "absent"), ("--context", "absent", "log", "ls")):
        assert absent in person.fails(3, *words)
    assert absent in person.fails(3, "log", "ls", STRANDLINE_CONTEXT="absent")
    assert "either a context or --none" in person.fails(2, "context", "use")
    assert not person.file.exists()
    person.file.parent.mkdir()
    person.file.write_text('{"servers": 1}')
    assert "is not a file of contexts" in person.fails(1, "log", "ls")
    assert person.file.read_text() == '{"servers": 1}'
    person.file.unlink()
    person.file.mkdir()
    assert "cannot read" in person.fails(1, "log", "ls")


def test_keys_that_others_may_read_are_reported(person: Person) -> None:
    person.said("context", "add", "a", "http://a:4000", "--api-key", "secret")
    person.file.chmod(0o644)
    result = person("context", "ls")
    assert result.exit_code == 0
    assert f"run `chmod 600 {person.file}`" in result.stderr


def test_names_are_completed_from_the_current_context(
    cli: Cli, person: Person, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.lines("log", "append", f"{name}-x", "1")
    person.said("context", "add", "here", cli.url, "--use")
    for variable in ("STRANDLINE_URL", "STRANDLINE_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(person.directory))
    assert complete_log(f"{name}-") == [f"{name}-x"]
    person.file.write_text("no JSON")
    assert complete_log(f"{name}-") == []


@pytest.mark.parametrize("command", ["log tail {name} --from 1", "log ls", "sql 'from \"{name}\"' --json"])
def test_a_reader_of_the_output_may_stop(cli: Cli, name: str, command: str) -> None:
    """``head`` closes the pipe: the command is done, without a message."""
    cli.lines("log", "append", name, input="\n".join(f'"{number:0>100}"' for number in range(3000)))
    program = f"{sys.executable} -m strandline --url {cli.url} {command.format(name=name)}"
    # The pipe is closed before the command prints.
    done = subprocess.run(
        ["bash", "-c", f"{program} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_command_with_an_effect_says_that_its_output_was_lost(cli: Cli, name: str) -> None:
    program = f"{sys.executable} -m strandline --url {cli.url} log append {name} 1"
    done = subprocess.run(
        ["bash", "-c", f"{program} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout == "1\n"
    assert len(cli.rows("log", "tail", name)) == 1
