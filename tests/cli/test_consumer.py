from __future__ import annotations

import os
import subprocess
import sys

from support.command_line import Cli
from support.server_process import ServerProcess

from strandline.cli.times import show_time
from strandline.client import Client


def made(cli: Cli, name: str, seq: int = 2) -> None:
    """A log of three records, and its consumer."""
    cli.lines("log", "append", name, "1", "2", "3")
    cli.lines("consumer", "seek", name, "billing", seq, "--create")


def test_consumers_are_listed_and_shown_with_their_lag(cli: Cli, name: str) -> None:
    made(cli, name)
    cli.lines("consumer", "seek", name, "audit", "end", "--create")
    header, *rows = cli.words("consumer", "ls", name)
    assert header == ["log", "consumer", "seq", "head", "lag", "committed"]
    assert [row[:5] for row in rows] == [[name, "audit", "3", "3", "0"], [name, "billing", "2", "3", "1"]]
    shown = cli.json("consumer", "show", name, "billing")
    assert {**shown, "committed_ts": 0} == {
        "log": name, "consumer": "billing", "seq": 2, "head": 3, "lag": 1, "committed_ts": 0
    }  # fmt: skip
    assert ["lag", "1"] in cli.words("consumer", "show", name, "billing")
    # Without a log: the consumers of all logs.
    cli.lines("log", "append", f"{name}-b", "1")
    cli.lines("consumer", "seek", f"{name}-b", "billing", "start", "--create")
    found = cli.json("consumer", "ls", "--prefix", name)["consumers"]
    assert [(one["log"], one["consumer"], one["lag"]) for one in found] == [
        (name, "audit", 0), (name, "billing", 1), (f"{name}-b", "billing", 1)
    ]  # fmt: skip


def test_a_consumer_moves_to_a_seq_the_ends_and_a_time(cli: Cli, name: str) -> None:
    made(cli, name)
    assert cli.lines("consumer", "seek", name, "billing", "1") == [
        f"moved consumer billing of log {name}: seq 1, lag 2"
    ]
    assert cli.json("consumer", "seek", name, "billing", "end")["seq"] == 3
    assert cli.json("consumer", "seek", name, "billing", "start")["seq"] == 0
    third = cli.rows("log", "tail", name)[-1]["ts"]
    while cli.rows("log", "tail", name)[-1]["ts"] == third:
        cli.lines("log", "append", name, "4")
    later = cli.rows("log", "tail", name)[-1]
    assert cli.json("consumer", "seek", name, "billing", show_time(later["ts"]))["seq"] == later["seq"] - 1
    # An hour ago there was nothing: all of the log follows. Both forms mean the same.
    for hour in ("-1h", "1h"):
        assert cli.json("consumer", "seek", name, "billing", hour)["seq"] == 0
    assert cli.json("consumer", "seek", name, "billing", "2999-01-01")["lag"] == 0
    assert cli.json("consumer", "reset", name, "billing")["seq"] == 0


def test_bad_positions_and_names_change_nothing(cli: Cli, name: str) -> None:
    made(cli, name)
    assert "expected start, end, a sequence number, or a time" in cli.fails(
        2, "consumer", "seek", name, "billing", "yesterday"
    )
    assert "past the head" in cli.fails(2, "consumer", "seek", name, "billing", "99")
    assert "No such option" in cli.fails(2, "consumer", "seek", name, "billing", "1", "--creat-e")
    absent = f"strandline: log '{name}' has no consumer 'nobody'; list the names with `strandline consumer ls {name}`"
    for words in (("show",), ("seek",), ("reset",), ("rm",)):
        position = ["1"] if words == ("seek",) else []
        assert cli.fails(3, "consumer", *words, name, "nobody", *position) == absent
        assert "log 'absent' not found" in cli.fails(3, "consumer", *words, "absent", "nobody", *position)
    assert "log 'absent' not found" in cli.fails(3, "consumer", "ls", "absent")
    assert "is not a consumer name" in cli.fails(2, "consumer", "seek", name, "_a", "1", "--create")
    assert [(one["consumer"], one["seq"]) for one in cli.json("consumer", "ls", name)["consumers"]] == [("billing", 2)]


def test_a_consumer_is_deleted(cli: Cli, name: str) -> None:
    made(cli, name)
    assert cli.lines("consumer", "rm", name, "billing") == [f"deleted consumer billing of log {name}"]
    assert cli.json("consumer", "ls", name) == {"consumers": []}
    cli.fails(3, "consumer", "rm", name, "billing")


def test_names_of_consumers_are_completed(cli_server: ServerProcess, cli: Cli, name: str) -> None:
    made(cli, name)
    environment = {"_STRANDLINE_COMPLETE": "complete_bash", "STRANDLINE_URL": cli_server.url}
    words = f"strandline consumer show {name} b"
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'strandline'; from strandline.cli.main import main; main()"],
        env={**os.environ, **environment, "COMP_WORDS": words, "COMP_CWORD": "4"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == ["billing"], done.stderr


def test_a_consumer_group_is_listed_shown_moved_and_deleted(cli_server: ServerProcess, cli: Cli, name: str) -> None:
    made(cli, name)
    with Client(cli_server.url) as client:
        group = client.topic(name).consumer_group("shop")
        with group.join(node="worker-1", shares=2) as member:
            assert len(list(member.records(until_end=True))) == 3
            rows = cli.words("consumer", "ls", name)[1:]
            assert [row[1:-1] for row in rows] == [["billing", "2", "3", "1"], ["shop", "(2", "shares)", "3", "3", "0"]]
            names = [one["consumer"] for one in cli.json("consumer", "ls", name)["consumers"]]
            assert names == ["billing", "shop:0-of-2", "shop:1-of-2"]
            shown = cli.json("consumer", "show", name, "shop")
            assert (shown["log"], shown["group"], shown["head"], shown["lag"]) == (name, "shop", 3, 0)
            assert [(one["node"], one["shares"]) for one in shown["members"]] == [("worker-1", 2)]
            assert [(one["consumer"], one["node"]) for one in shown["shares"]] == [
                ("shop:0-of-2", "worker-1"), ("shop:1-of-2", "worker-1"),
            ]  # fmt: skip
            words = cli.words("consumer", "show", name, "shop")
            assert ["members", "1"] in words
            assert [row[:4] for row in words[-2:]] == [["0", "worker-1", "3", "0"], ["1", "worker-1", "3", "0"]]
            for command in (["seek", name, "shop", "1"], ["reset", name, "shop"], ["rm", name, "shop"]):
                assert "stop all members first: worker-1" in cli.fails(6, "consumer", *command)
    assert cli.lines("consumer", "seek", name, "shop", "1") == [f"moved consumer shop of log {name}: seq 1, lag 2"]
    assert [one["seq"] for one in cli.json("consumer", "show", name, "shop")["shares"]] == [1, 1]
    assert cli.json("consumer", "reset", name, "shop")["seq"] == 0
    cli.lines("consumer", "rm", name, "shop")
    assert [one["consumer"] for one in cli.json("consumer", "ls", name)["consumers"]] == ["billing"]
