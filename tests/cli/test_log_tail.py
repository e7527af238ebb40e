"""``log tail`` of several logs."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest
from support.command_line import Cli
from support.document_tables import ROOT

from strandline.cli import log_tail


def test_records_of_several_logs_are_sorted_by_time(cli: Cli, name: str) -> None:
    a, b, c = f"{name}:a", f"{name}:b", f"{name}c"
    for number, log in enumerate((a, b, a, c, b)):
        cli.lines("log", "append", log, str(number), "-k", "odd" if number % 2 else "even")
    rows = cli.rows("log", "tail", a, b, c)
    assert [row["ts"] for row in rows] == sorted(row["ts"] for row in rows)
    assert [(row["log"], row["seq"]) for row in rows if row["log"] == a] == [(a, 1), (a, 2)]
    assert sorted(row["data"] for row in rows) == [0, 1, 2, 3, 4]
    # A prefix, the last of each, the same log twice, and a filter.
    assert {row["log"] for row in cli.rows("log", "tail", f"{name}:*")} == {a, b}
    assert sorted(row["data"] for row in cli.rows("log", "tail", f"{name}*", "-n", "1")) == [2, 3, 4]
    assert len(cli.rows("log", "tail", f"{name}*", a)) == 5
    assert {row["data"] for row in cli.rows("log", "tail", f"{name}*", "-k", "odd")} == {1, 3}
    assert len(cli.rows("log", "tail", f"{name}*", "--since", "1h")) == 5
    assert cli.rows("log", "tail", f"{name}*", "--since", "2999-01-01") == []
    assert cli.rows("log", "tail", f"{name}-absent*") == []
    lines = cli.words("log", "tail", f"{name}*")
    assert {(line[0], line[1]) for line in lines} == {(a, "1"), (a, "2"), (b, "1"), (b, "2"), (c, "1")}
    header, *_ = cli.lines("log", "tail", a, b, "--output", "csv")
    assert header.startswith("log,seq,time")


def test_losses_are_shown_with_their_log(cli: Cli, name: str) -> None:
    cli.lines("log", "create", f"{name}a", "--max-records", "1")
    cli.lines("log", "append", f"{name}a", "1", "2")
    cli.lines("log", "append", f"{name}b", "1")
    rows = cli.rows("log", "tail", f"{name}*")
    assert {"log": f"{name}a", "lost": {"first": 1, "last": 1, "reason": "cap"}} in rows
    assert [row["log"] for row in rows if "lost" not in row] == [f"{name}a", f"{name}b"]


def test_what_cannot_be_read_together_is_refused(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.lines("log", "append", f"{name}a", "1")
    httpx.put(f"{cli.url}/v1/stream/{name}b", content=b"x", headers={"content-type": "text/plain"}, trust_env=False)
    assert "needs a single log" in cli.fails(2, "log", "tail", f"{name}a", f"{name}b", "--from", "1")
    assert "does not hold JSON" in cli.fails(2, "log", "tail", f"{name}a", f"{name}b")
    assert "not found" in cli.fails(3, "log", "tail", f"{name}a", f"{name}-absent")
    result = cli("log", "tail", f"{name}*", "--json")
    assert [json.loads(line)["log"] for line in result.stdout.splitlines()] == [f"{name}a"]
    assert f"skipping log {name}b: it holds text/plain" in result.stderr
    cli.lines("log", "append", f"{name}c", "1")
    monkeypatch.setattr(log_tail, "MAX_LOGS", 1)
    assert "more than 1 logs match" in cli.fails(2, "log", "tail", f"{name}*")


@pytest.mark.parametrize("start", [("-n", "1"), ("--since", "1h")], ids=" ".join)
def test_a_prefix_is_followed_also_in_logs_that_are_created_later(cli: Cli, name: str, start: tuple[str, str]) -> None:
    a, b = f"{name}:a", f"{name}:b"
    cli.lines("log", "append", a, "1", "2")
    command = [
        sys.executable,
        "-m",
        "strandline",
        "--url",
        cli.url,
        "log",
        "tail",
        f"{name}:*",
        a,
        *start,
        "-f",
        "--json",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())]
        if start[0] == "--since":
            seen.append(json.loads(process.stdout.readline()))
        # Whether the watch has begun or not: nothing is missed and nothing comes twice.
        cli.lines("log", "append", a, "3")
        cli.lines("log", "append", b, "4")
        seen += [json.loads(process.stdout.readline()) for _ in range(2)]
        found = {(one["log"], one["data"]) for one in seen}
        assert found == {(a, 2), (a, 3), (b, 4)} | ({(a, 1)} if start[0] == "--since" else set())
        assert len(seen) == len(found)
    finally:
        process.terminate()
        process.wait(30)
