from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

from support.command_line import Cli
from support.document_tables import ROOT
from support.server_process import ServerProcess, StartServer

from strandline.cli import top
from strandline.cli.top import Monitor, Snapshot, fields_of, tables_of
from strandline.client import Client


def test_the_figures_of_a_server_are_printed_once(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1", "2")
    cli.lines("consumer", "seek", name, "slow", "start", "--create")
    cli.lines("log", "create", f"{name}-q", "--type", "queue")
    cli.lines("queue", "enqueue", f"{name}-q", *map(str, range(9)))
    (snapshot,) = cli.rows("top", "--once")
    assert (snapshot["url"], snapshot["status"], snapshot["requests"]) == (cli.url, "ok", None)
    assert snapshot["records"] >= 11
    assert {"topic": name, "consumer": "slow", "lag": 2} in snapshot["consumers"] or len(
        snapshot["consumers"]
    ) == top.SHOWN
    lines = cli.lines("top")
    assert lines[0].startswith(f"server       {cli.url}, ok")
    assert any(line.split()[:1] == ["queues"] for line in lines)
    assert "does not answer" in Cli("http://127.0.0.1:1").fails(4, "top", "--once")


def test_requests_are_counted_between_two_looks(start_server: StartServer) -> None:
    with Client(start_server().url) as client:
        monitor = Monitor(client)
        assert monitor.look().requests is None
        for _ in range(50):
            client.call("GET", "/v0/topics")
        rate = monitor.look().requests
        assert rate is not None
        assert rate > 0
        assert monitor._request_rate([{"count": 1}], 1) is None, "the server was started again"


def test_tables_without_rows_are_left_out() -> None:
    empty = Snapshot("u", "1", "ok", 1, 1, 1, 1, 1, 1.0, 1.0, 0.5, 1, 1, 0.0, 3.0, [], [], [])
    assert tables_of(empty) == []
    assert fields_of(empty)["requests"] == "3/s"


def test_a_terminal_shows_the_figures_until_ctrl_c(cli_server: ServerProcess, cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "strandline", "--url", cli_server.url, "top", "--interval", "0.1"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        # The second screen has the rate of requests.
        while b"requests" not in shown:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while True:
            shown += os.read(ours, 65536)
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == 0, shown
    assert b"Traceback" not in shown


def test_documents_are_printed_until_the_reader_stops(cli: Cli) -> None:
    program = f"{sys.executable} -m strandline --url {cli.url} top --json --interval 0.1"
    done = subprocess.run(
        ["bash", "-c", f"{program} | head -n 2 | wc -l; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.split() == ["2", "0"]
    assert done.stderr == ""
