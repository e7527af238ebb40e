from __future__ import annotations

import re

import pytest
from support.command_line import Cli
from support.server_process import StartServer

from strandline import __version__


def test_a_server_is_pinged(cli: Cli) -> None:
    first, second = cli.lines("ping", "--count", "2", "--interval", "0")
    for line in (first, second):
        assert re.fullmatch(rf"{re.escape(cli.url)} answered in [\d.]+ ms: ok, version {re.escape(__version__)}", line)
    (row,) = cli.rows("ping")
    assert (row["url"], row["status"], row["version"]) == (cli.url, "ok", __version__)
    assert row["ms"] > 0
    assert "does not answer" in cli.fails(4, "ping", "--url", "http://127.0.0.1:1")


def test_a_server_describes_itself(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1")
    fields = {line.split()[0]: line.split(maxsplit=1)[1] for line in cli.lines("info")}
    assert (fields["url"], fields["version"], fields["status"]) == (cli.url, __version__, "ok")
    assert int(fields["records"].replace(",", "")) >= 1
    found = cli.json("info")
    assert found["metrics"]["topics"] >= 1
    assert found["health"]["version"] == __version__


def test_the_health_needs_no_key_and_the_figures_do(start_server: StartServer) -> None:
    cli = Cli(start_server(keys="secret").url)
    assert cli("ping").exit_code == 0
    cli.fails(5, "info")
    assert cli("info", "--api-key", "secret").exit_code == 0


def test_something_else_at_the_url_is_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.client import Client
    from strandline.client.calls import Answer

    monkeypatch.setattr(Client, "call", lambda *arguments, **named: Answer(200, {}, b"<html>"))
    assert "not as Strandline does" in cli.fails(1, "ping")
