"""What a terminal gets: no control character that somebody else wrote. What a file or a program gets is as it is."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from support.command_line import Cli
from support.server_process import ServerProcess

import strandline.cli
from strandline.cli import output
from strandline.cli.output import open_console, print_table, put, say

#: A title, a cleared screen, a clipboard, an overwritten line, reversed text, and the same with one character (C1).
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07good\rbad\u202egnp.exe\x9b31m\x7f"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def assert_harmless(printed: str) -> None:
    """Only colours of our own, line breaks and tabs."""
    rest = COLOUR.sub("", printed).replace("\r\n", "\n").replace("\n", "").replace("\t", "")
    assert rest.isprintable(), ascii(rest)
    assert "gnp.exe" in rest


class Tty:
    """A file that says that it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_lines_at_a_terminal_and_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    tty = Tty()
    put(EVIL, file=tty)  # type: ignore[arg-type]
    assert_harmless(tty.text)
    document = json.dumps({"a": EVIL}, ensure_ascii=False)
    tty.text = ""
    put(document, file=tty)  # type: ignore[arg-type]
    assert_harmless(tty.text)
    assert json.loads(tty.text) == {"a": EVIL}, "JSON stays JSON"
    put(EVIL)
    say(f"the log {EVIL} is not there")
    out, err = capsys.readouterr()
    assert out == EVIL + "\n"
    assert_harmless(err)


def test_tables_and_colours_at_a_terminal() -> None:
    tty = Tty()
    console = open_console(file=tty, force_terminal=True, color_system="standard", width=200, highlight=False)
    table = Table("column")
    table.add_row(Text(EVIL, "red"))
    table.add_row(EVIL)
    console.print(table, Panel(EVIL, title=EVIL), Text(EVIL, "bold"), EVIL, f"[red]{EVIL}[/]", sep="\n")
    assert "\x1b[31m" in tty.text, "our own colours are there"
    assert_harmless(tty.text)


def test_wrapped_cells_lose_no_character_of_escaped_text(monkeypatch: pytest.MonkeyPatch) -> None:
    tty = Tty()
    monkeypatch.setattr(sys, "stdout", tty)
    console = open_console(file=tty, force_terminal=True, color_system=None, width=30, highlight=False)
    monkeypatch.setattr(output, "terminal", lambda: console)
    print_table(("reason",), [("\x1b]52;c;" * 12,)])
    header, *lines = tty.text.splitlines()
    assert header.strip() == "reason"
    assert max(map(len, lines)) <= 30
    assert "".join(line.strip() for line in lines) == "\\u001b]52;c;" * 12


def test_nothing_is_printed_past_the_one_place() -> None:
    """Every module of the command line prints by way of ``output``."""
    directory = Path(strandline.cli.__file__).parent
    past = re.compile(r"(?<![\w.])print\(|sys\.std(?:out|err)\.write|(?<![\w.])Console\((?!\))|typer\.echo|click\.echo")
    found = [
        f"{path.relative_to(directory)}: {line.strip()}"
        for path in directory.rglob("*.py")
        if path.name != "output.py"
        for line in path.read_text().splitlines()
        if past.search(line)
    ]
    assert found == []


def at_terminal(*arguments: str, url: str) -> str:
    """What a command prints to a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "STRANDLINE_URL": url, "COLUMNS": "300", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "strandline", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    printed = b""
    try:
        while data := os.read(ours, 65536):
            printed += data
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == 0, printed
    return printed.decode()


def test_records_of_a_log_at_a_real_terminal(cli_server: ServerProcess, cli: Cli, name: str) -> None:
    url = f"{cli_server.url}/v1/stream/{name}"
    httpx.put(url, content=EVIL.encode(), headers={"content-type": "text/plain"}, trust_env=False)
    assert_harmless(at_terminal("log", "tail", name, url=cli_server.url))
    (line,) = cli.lines("log", "tail", name, "--json")
    assert "\u202egnp.exe\x9b31m\x7f" in line, "what is piped is as it was written"
