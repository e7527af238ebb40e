from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.command_line import Cli
from support.document_tables import ROOT
from support.server_process import ServerProcess

from strandline.cli.commands import COMMANDS
from strandline.cli.shell_words import STARTS, Completer, completions, is_sql


def test_lines_of_a_file_are_run_up_to_the_first_that_fails(cli: Cli, name: str) -> None:
    lines = [
        f"log append {name} 1 2  # a comment",
        "",
        f"strandline log append {name} '\"three\"'",
        f'select count(*) as n\nfrom "{name}";',
        f"log tail {name} -n 1",
    ]
    result = cli("shell", input="\n".join(lines))
    assert result.exit_code == 0, result.output
    created, appended, column, count, record = result.stdout.splitlines()
    assert created == f"created log {name}; appended 2 records, seq 1 to 2"
    assert (appended, column, count) == ("appended 1 record, seq 3", "n", "3")
    assert record.endswith('"three"')
    failed = cli("shell", input=f"log show {name}-absent\nlog append {name} 4\n")
    assert (failed.exit_code, len(cli.rows("log", "tail", name))) == (3, 3)
    assert "not found" in failed.stderr
    assert cli("shell", input=f"exit\nlog append {name} 4\n").exit_code == 0
    assert len(cli.rows("log", "tail", name)) == 3
    assert "no semicolon" in cli.fails(2, "shell", input="select 1\n")
    assert "No closing quotation" in cli.fails(2, "shell", input="log append a 'x\n")
    assert "terminal of its own" in cli.fails(2, "shell", input="serve\n")
    assert "router" in cli("shell", input="help\n").stdout
    assert "--record-key" in cli("shell", input="help log append\n").stdout


def test_commands_talk_to_the_server_of_the_shell(cli: Cli, name: str, tmp_path: Path) -> None:
    other = Cli("http://127.0.0.1:1")
    assert other("--url", cli.url, "shell", input=f"log append {name} 1\n").exit_code == 0
    # Until a context is chosen.
    script = f"context add here {cli.url}\ncontext use here\nlog show {name} --json\n"
    result = other("shell", input=script, XDG_CONFIG_HOME=str(tmp_path))
    assert result.exit_code == 0, result.output
    assert os.environ.get("STRANDLINE_URL") != cli.url, "the process has its own environment again"


def test_no_command_is_taken_for_sql() -> None:
    assert not set(COMMANDS) & set(STARTS)
    assert is_sql("  SELECT 1")
    assert not is_sql("selected")
    assert not is_sql("log ls")


def test_words_are_completed(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_URL", cli.url)
    cli.lines("log", "append", f"{name}:a", "1")
    cli.lines("log", "create", f"{name}-q", "--type", "queue")
    cli.lines("consumer", "seek", f"{name}:a", "billing", "1", "--create")

    def after(line: str) -> list[str]:
        return completions(line, line.rpartition(" ")[2])

    assert after("conte") == ["context"]
    assert "exit" in after("ex")
    assert sorted(after("se")) == ["search", "select", "serve"]
    assert after("log ta") == ["tail"]
    assert after(f"log tail {name}") == [f"{name}-q", f"{name}:a"]
    assert after(f"log tail {name}:a {name}-") == [f"{name}-q"]
    assert after(f"queue peek {name}") == [f"{name}-q"]
    assert after(f"consumer show {name}:a b") == ["billing"]
    assert after("log tail a --rec") == ["--record-key"]
    assert after("log create a --durability f") == ["fsync"]
    assert after("strandline log ta") == ["tail"]
    # SQL.
    assert after(f"select * from {name}") == [f'"{name}-q"', f'"{name}:a"']
    assert after(f'select * from "{name}:') == [f'"{name}:a"']
    assert after("select a from b group") == ["group by"]
    assert "seq" in after("select s")
    # What is not known or not complete.
    assert after("nothing x") == after("log nothing x") == after("log tail 'x ") == []
    completer = Completer(lambda: "log ta")
    assert (completer("ta", 0), completer("ta", 1)) == ("tail ", None)


def test_a_person_at_a_terminal(cli_server: ServerProcess, cli: Cli, name: str, tmp_path: Path) -> None:
    cli.lines("log", "append", name, "1")
    ours, theirs = pty.openpty()
    state = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "STRANDLINE_URL": cli_server.url}
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200", "INPUTRC": "/dev/null", **state}
    command = [sys.executable, "-m", "strandline", "shell"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    # Then reading fails instead of waiting.
    timer = threading.Timer(90, process.kill)
    timer.start()
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(ours, 65536)
        shown = shown.partition(text)[2]

    prompt = cli_server.url.partition("//")[2].encode() + b"> "
    try:
        until(b"all commands")
        until(prompt)
        # Completed with the tab key: `log show NAME`.
        os.write(ours, f"log sh\t{name}\n".encode())
        until(b"content type  application/json")
        until(prompt)
        os.write(ours, b"log show absent\n")
        until(b"not found")
        until(prompt)
        os.write(ours, b"log ls --api-key secret\n")
        until(prompt)
        os.write(ours, b"select 40 +\n")
        until(b"...> ")
        os.write(ours, b"2 as n;\n")
        until(b"42")
        until(prompt)
        os.write(ours, b"\x04")
        assert process.wait(30) == 0
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        os.close(ours)
    history = (tmp_path / "strandline/history").read_text()
    assert f"log show {name}" in history
    assert "secret" not in history
    assert (tmp_path / "strandline/history").stat().st_mode & 0o777 == 0o600


def test_a_data_directory_at_a_python_prompt(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "strandline", "shell", str(tmp_path / "data")]
    program = (
        "log = engine.create('a').wait()\nlog.append(Batch.of(b'1')).wait()\nprint(engine.names(), log.state().count)\n"
    )
    done = subprocess.run(command, cwd=ROOT, input=program, capture_output=True, text=True, check=True, timeout=60)
    assert "['a'] 1" in done.stdout
    assert "is open as `engine`" in done.stderr
