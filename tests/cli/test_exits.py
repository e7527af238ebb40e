"""Every exit code, by something that really goes wrong."""

from __future__ import annotations

import re

import pytest
from support.command_line import Cli, app
from support.document_tables import ROOT
from support.server_process import StartServer
from typer.main import get_command

from strandline.cli.connection import complete_log, complete_queue, complete_router, connect
from strandline.cli.exit_codes import Exit

NOBODY = "http://127.0.0.1:1"
TALKING = [
    ("log", "ls"),
    ("log", "show", "a"),
    ("log", "create", "a"),
    ("log", "append", "a", "1"),
    ("log", "tail", "a"),
    ("log", "diff", "a"),
    ("log", "delete", "a", "--all", "--yes"),
    ("log", "configure", "a", "--max-records", "1"),
    ("queue", "ls"),
    ("queue", "enqueue", "a", "1"),
    ("queue", "peek", "a"),
    ("queue", "redrive", "a"),
    ("queue", "dead-letters", "a"),
    ("queue", "claim", "a"),
    ("queue", "ack", "a", "1"),
    ("queue", "nack", "a", "1"),
    ("queue", "work", "a", "--", "true"),
    ("consumer", "ls"),
    ("consumer", "show", "a", "b"),
    ("consumer", "seek", "a", "b", "end"),
    ("consumer", "reset", "a", "b"),
    ("consumer", "rm", "a", "b"),
    ("schema", "get", "a"),
    ("schema", "infer", "a"),
    ("log", "tail", "a", "b"),
    ("log", "tail", "a*"),
    ("info",),
    ("top", "--once"),
    ("bench",),
    ("router", "ls"),
    ("router", "show", "a"),
    ("router", "create", "a", "--from", "b", "--to", "c"),
    ("router", "delete", "a"),
    ("search", "a", "b"),
    ("aggregate", "a", "b"),
    ("sql", "select * from a"),
]


@pytest.mark.parametrize("command", TALKING, ids=" ".join)
def test_no_server_is_told_in_one_line_and_makes_exit_code_4(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connect.__kwdefaults__ is not None
    monkeypatch.setitem(connect.__kwdefaults__, "patience", 0.0)
    result = Cli(NOBODY)(*command)
    assert result.exit_code == Exit.UNREACHABLE, result.output
    assert (len(result.stderr.splitlines()), result.stdout) == (1, "")
    assert f"the server at {NOBODY} does not answer" in result.stderr
    assert "start the server with `strandline serve`, or set --url" in result.stderr


def test_wrong_keys_and_keys_that_are_not_enough_make_exit_code_5(start_server: StartServer) -> None:
    cli = Cli(start_server(keys="all,reader:read").url)
    cli.lines("log", "append", "a", "1", "--api-key", "all")
    for command in TALKING:
        cli.fails(5, *command[:2], "--api-key", "wrong", *command[2:])
    assert "write scope" in cli.fails(5, "log", "append", "a", "1", "--api-key", "reader")
    assert cli("log", "tail", "a", STRANDLINE_KEY="reader").exit_code == Exit.FINE
    # The former name of the option.
    assert cli("log", "tail", "a", "--key", "reader").exit_code == Exit.FINE
    assert "set --api-key" in cli.fails(5, "log", "tail", "a", "--key", "wrong")


def test_what_makes_no_sense_makes_exit_code_2(cli: Cli) -> None:
    assert "http" in cli.fails(2, "log", "ls", "--url", "ftp://somewhere")
    cli.fails(2, "log", "nothing")
    cli.fails(2, "log", "tail", "a", "--lines", "x")
    cli.fails(2, "log", "tail", "a", "--since", "1 hour")
    cli.fails(2, "log", "append", "a name with spaces", "1")


def test_names_are_completed_from_the_server(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.lines("log", "append", f"{name}-one", "1")
    cli.lines("log", "create", f"{name}-two", "--type", "queue")
    cli.lines("router", "create", f"{name}-r", "--from", f"{name}-one", "--to", f"{name}-three")
    monkeypatch.setenv("STRANDLINE_URL", cli.url)
    assert complete_log(f"{name}-") == [f"{name}-one", f"{name}-three", f"{name}-two"]
    assert (complete_queue(f"{name}-"), complete_router(f"{name}-")) == ([f"{name}-two"], [f"{name}-r"])
    monkeypatch.setenv("STRANDLINE_URL", NOBODY)
    assert complete_log("a") == []


def test_the_guide_has_every_exit_code_and_every_command() -> None:
    guide = (ROOT / "docs/how-to/use-the-command-line.md").read_text()
    table = guide.partition("## Exit codes\n")[2].partition("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} >= {int(code) for code in Exit}
    commands = get_command(app)
    for name, command in commands.commands.items():  # type: ignore[attr-defined]
        for words in [f"{name} {each}" for each in getattr(command, "commands", {})] or [name]:
            assert f"strandline {words}" in guide, words
