from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from support.command_line import Cli
from support.server_process import ServerProcess, StartServer

from strandline.client import Client

PROGRAM = [sys.executable, "-m", "strandline"]
NOT_FOUND = "strandline: log '{}' not found; list the names with `strandline log ls`"


def test_logs_are_listed_searched_sorted_and_paged(cli: Cli, name: str) -> None:
    for number in range(1, 4):
        cli.lines("log", "append", f"{name}-{number}", *([number] * number))
    header, *rows = cli.words("log", "ls", "--prefix", f"{name}-")
    assert header[:3] == ["log", "type", "records"]
    assert [row[:3] for row in rows] == [[f"{name}-{number}", "log", str(number)] for number in range(1, 4)]
    page = cli.json("log", "ls", "--prefix", f"{name}-", "--sort", "records", "-n", 2)
    assert ([row["records"] for row in page["logs"]], page["more"]) == ([3, 2], True)
    page = cli.json("log", "ls", "--prefix", f"{name}-", "--sort", "records", "-n", 2, "--page", 2)
    assert ([row["records"] for row in page["logs"]], page["more"]) == ([1], False)
    assert [row["log"] for row in cli.json("log", "ls", f"{name[1:]}-2")["logs"]] == [f"{name}-2"]
    assert [row["log"] for row in cli.json("log", "ls", "--prefix", f"{name}-", "-r", "-n", 1)["logs"]] == [f"{name}-3"]
    assert (
        cli.lines("log", "ls", "--prefix", f"{name}-", "-n", 1)[-1]
        == "more logs exist; print the next page with --page 2"
    )


def test_a_log_is_made_with_its_configuration_and_shown(cli: Cli, name: str) -> None:
    assert cli.lines("log", "create", name, "--max-age", "7d", "--max-records", 5) == [f"created log {name}"]
    shown = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in cli.lines("log", "show", name)}
    assert (shown["log"], shown["max age"], shown["max records"], shown["durability"]) == (name, "1w", "5", "disk")
    answer = cli.json("log", "show", name)
    assert (answer["state"]["config"]["ttl_ms"], answer["info"]["ephemeral"]) == (604_800_000, False)
    assert f"log '{name}' already exists" in cli.fails(6, "log", "create", name)
    assert "names that start with an underscore are reserved" in cli.fails(2, "log", "create", f"_{name}")


def test_a_queue_is_made_with_where_its_dead_letters_go(cli: Cli, name: str) -> None:
    made = cli.json("log", "create", name, "--type", "queue", "--dead-letter", "dead", "--lease", "10s")
    assert (made["config"]["dead_letter"], made["config"]["lease_ms"]) == ("dead", 10_000)
    assert "--type queue" in cli.fails(2, "log", "create", f"{name}-2", "--lease", "10s")


def test_consumers_and_routers_are_shown_with_a_log(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1", "2")
    with Client(cli.url) as client:
        client.topic(name).consumer("billing").commit(1)
    cli.lines("router", "create", f"{name}-r", "--from", name, "--to", f"{name}-copy")
    words = cli.words("log", "show", name)
    assert ["billing", "1", "1"] in [line[:3] for line in words]
    assert [f"{name}-r", name, f"{name}-copy"] in words


def test_a_schema_that_is_refused_leaves_no_log(cli: Cli, name: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"schema": {"type": "no such type"}}')
    cli.fails(2, "log", "create", name, "--schema", file)
    cli.fails(3, "log", "show", name)
    file.write_text("{")
    assert "schema.json" in cli.fails(2, "log", "create", name, "--schema", file)


def test_records_are_appended_byte_for_byte(cli: Cli, name: str) -> None:
    told = cli.lines("log", "append", name, '{"price": 1.10}', "2", "-k", "ann", "--node", "till", "--meta", '{"a":1}')
    assert told == [f"created log {name}; appended 2 records, seq 1 to 2"]
    (line, _) = cli.lines("log", "tail", name, "--json")
    assert '"key":"ann","node":"till","meta":{"a":1},"data":{"price": 1.10}' in line


def test_lines_of_standard_input_are_appended(cli: Cli, name: str) -> None:
    assert cli.json("log", "append", name, input='{"a":1}\n\n"two"\n3')["appended"] == 3
    assert [row["data"] for row in cli.rows("log", "tail", name)] == [{"a": 1}, "two", 3]
    cli.lines("log", "append", name, "--text", input="a line\n")
    assert cli.rows("log", "tail", name, "-n", 1)[0]["data"] == "a line"


def test_of_text_empty_lines_are_appended_too(cli: Cli, name: str) -> None:
    assert cli.json("log", "append", name, "--text", input="one\n\ntwo\n")["appended"] == 3
    assert [json.loads(line)["data"] for line in cli.lines("log", "tail", name, "--json")] == ["one", "", "two"]


def test_a_record_that_was_written_on_several_lines_is_printed_on_one(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, '{\n  "a": 1,\r\n  "b": "x\\ny"\n}')
    (line,) = cli.lines("log", "tail", name, "--json")
    assert json.loads(line)["data"] == {"a": 1, "b": "x\ny"}


def test_what_tail_prints_can_be_appended_elsewhere(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1", "-k", "a")
    cli.lines("log", "append", name, "2", "-k", "b", "--node", "n")
    printed = "\n".join(cli.lines("log", "tail", name, "--json"))
    cli.lines("log", "append", f"{name}-copy", "--records", input=printed)
    rows = cli.rows("log", "tail", f"{name}-copy")
    assert [(row["data"], row["key"], row.get("node")) for row in rows] == [(1, "a", None), (2, "b", "n")]


def test_an_idempotency_key_appends_once_however_many_lines_there_are(cli: Cli, name: str) -> None:
    lines = "\n".join(map(str, range(1200)))
    first = cli.json("log", "append", name, "--idempotency-key", "import-7", input=lines)
    again = cli.json("log", "append", name, "--idempotency-key", "import-7", input=lines)
    assert (first["appended"], first["last"], again["appended"], again["repeated"]) == (1200, 1200, 0, 1200)


def test_a_line_that_is_no_json_is_named_and_those_of_its_batch_are_not_appended(cli: Cli, name: str) -> None:
    assert "argument 2 is not valid JSON: 'no' (" in cli.fails(2, "log", "append", name, "1", "no")
    cli.fails(3, "log", "show", name)
    said = cli.fails(2, "log", "append", name, "--idempotency-key", "k", input="1\n" * 500 + "no\n")
    assert "line 501 is not valid JSON" in said
    assert "500 records of earlier lines appended" in said


def test_the_number_of_a_wrong_line_counts_empty_lines(cli: Cli, name: str) -> None:
    assert "line 4 is not valid JSON: 'no'" in cli.fails(2, "log", "append", name, input="1\n\n\nno\n")
    assert "line 3 is not a record: '7'" in cli.fails(2, "log", "append", name, "--records", input='{"data":1}\n\n7')


def test_jobs_are_appended_with_a_priority_and_a_delay(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--type", "queue")
    cli.lines("log", "append", name, '"low"')
    cli.lines("log", "append", name, '"high"', "--priority", 5)
    cli.lines("log", "append", name, '"later"', "--delay", "1h")
    with Client(cli.url) as client:
        assert [job.data for job in client.queue(name).claim(10)] == ["high", "low"]
    peeked = cli.json("queue", "peek", name)
    assert (peeked["ready"], peeked["in_flight"], peeked["delayed"]) == (0, 2, 1)
    cli.lines("log", "append", f"{name}-log", "1")
    assert f"'{name}-log' is not a queue" in cli.fails(6, "log", "append", f"{name}-log", "1", "--priority", 1)
    assert f"queue '{name}-none' not found" in cli.fails(3, "log", "append", f"{name}-none", "1", "--delay", "1m")
    cli.fails(3, "log", "show", f"{name}-none")


def test_former_names_of_retention_options_still_work(cli: Cli, name: str) -> None:
    made = cli.json("log", "create", name, "--ttl", "1h", "--cap-records", 5, "--cap-bytes", 1000)["config"]
    assert (made["ttl_ms"], made["cap_records"], made["cap_bytes"]) == (3_600_000, 5, 1000)


def test_a_log_that_is_not_there_is_not_made_when_that_is_not_wanted(cli: Cli, name: str) -> None:
    assert cli.fails(3, "log", "append", name, "1", "--no-create") == NOT_FOUND.format(name)


def test_a_log_with_a_schema_is_appended_to_as_a_stream(cli: Cli, name: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"schema": {"type": "object"}}')
    cli.lines("log", "create", name, "--schema", file)
    assert cli.lines("log", "append", name, '{"a":1}', '{"a":2}', "-k", "x") == ["appended 2 records"]
    assert [row["key"] for row in cli.rows("log", "tail", name)] == ["x", "x"]
    assert "schema" in cli.fails(2, "log", "append", name, '{"a":1}', "--node", "n")
    cli.fails(2, "log", "append", name, "7")


def test_a_log_that_is_not_json_is_written_and_read_too(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--content-type", "text/plain")
    cli.lines("log", "append", name, "-k", "web", input="ready\nbusy\n")
    with Client(cli.url) as client:
        client.stream(name, content_type="text/plain").append(b"\xff\xfe")  # type: ignore[arg-type]
    rows = cli.rows("log", "tail", name)
    assert [(row["seq"], row.get("key"), row.get("text"), row.get("base64")) for row in rows] == [
        (1, "web", "ready\n", None),
        (2, "web", "busy\n", None),
        (3, None, None, "//4="),
    ]
    assert [row["seq"] for row in cli.rows("log", "tail", name, "-n", 5, "-k", "web")] == [1, 2]
    assert cli.json("log", "diff", name, 1, "-n", 1)["next"] == 2
    assert cli.json("log", "show", name)["state"] is None
    assert "text/plain" in cli.fails(2, "log", "append", name, "x", "--node", "n")
    assert cli.json("log", "delete", name, "--all", "--yes")["deleted"] == 3


def test_tail_shows_the_last_records_even_if_others_near_the_end_are_deleted(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, *range(100), "-k", "old")
    cli.lines("log", "append", name, *range(100), "-k", "gone")
    assert cli.json("log", "delete", name, "-k", "gone", "--yes")["deleted"] == 100
    assert [row["data"] for row in cli.rows("log", "tail", name, "-n", 3)] == [97, 98, 99]
    assert cli.rows("log", "tail", name, "-n", 0) == []


def test_tail_begins_at_a_seq_at_a_time_or_with_a_key(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1", "-k", "ann")
    cli.lines("log", "append", name, "2", "-k", "bob")
    assert [row["seq"] for row in cli.rows("log", "tail", name, "--from", 2)] == [2]
    assert len(cli.rows("log", "tail", name, "--since", "1h")) == 2
    assert cli.rows("log", "tail", name, "--since", "2100-01-01") == []
    assert [row["seq"] for row in cli.rows("log", "tail", name, "-k", "ann")] == [1]
    assert [row["seq"] for row in cli.rows("log", "tail", name, "--key-prefix", "b")] == [2]
    (line,) = cli.words("log", "tail", name, "-k", "bob")
    assert (line[0], line[2:]) == ("2", ["bob", "2"])


def test_what_was_lost_is_told(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--max-records", 2)
    cli.lines("log", "append", name, "1", "2", "3", "4")
    first, *rest = cli.lines("log", "tail", name)
    assert (first, len(rest)) == ("------  seq 1 to 2 removed by retention: max records or max bytes", 2)
    assert cli.rows("log", "tail", name, "--from", 1)[0] == {"lost": {"first": 1, "last": 2, "reason": "cap"}}
    assert cli.json("log", "diff", name)["lost"] == [{"first": 1, "last": 2, "reason": "cap"}]


def test_diff_is_one_page_and_says_where_to_go_on(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1", "2", "3")
    page = cli.json("log", "diff", name, 1, "--limit", 1)
    assert (page["records"][0]["data"], page["next"], page["head"], page["caught_up"]) == (2, 2, 3, False)
    assert (
        cli.lines("log", "diff", name, 1, "-n", 1)[-1] == f"1 record, head 3, next page: strandline log diff {name} 2"
    )
    assert cli.lines("log", "diff", name, 2)[-1] == "1 record, head 3, caught up"


def test_following_goes_on_over_a_restart_of_the_server(start_server: StartServer, name: str) -> None:
    server = start_server()
    cli = Cli(server.url)
    cli.lines("log", "append", name, "1")
    command = [*PROGRAM, "log", "tail", name, "-f", "--json", "--url", server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        try:
            assert json.loads(tail.stdout.readline())["data"] == 1
            cli.lines("log", "append", name, "2")
            assert json.loads(tail.stdout.readline())["data"] == 2
            port = server.port
            server.stop()
            server.start(port)
            cli.lines("log", "append", name, "3")
            assert json.loads(tail.stdout.readline())["data"] == 3
            tail.send_signal(signal.SIGINT)
            assert tail.wait(30) == 130
        finally:
            tail.kill()


def test_following_a_text_stream_ends_with_it(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--content-type", "text/plain")
    cli.lines("log", "append", name, "one")
    command = [*PROGRAM, "log", "tail", name, "-f", "--json", "--url", cli.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        try:
            assert json.loads(tail.stdout.readline())["text"] == "one"
            with Client(cli.url) as client:
                client.stream(name, content_type="text/plain").close("two")
            assert json.loads(tail.stdout.readline())["text"] == "two"
            assert tail.wait(30) == 0
        finally:
            tail.kill()


def test_what_would_be_deleted_is_shown_first(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, *range(7), "-k", "ann:1")
    cli.lines("log", "append", name, "7", "-k", "bob")
    *examples, more, summary = cli.lines("log", "delete", name, "--key-prefix", "ann:", "--dry-run")
    assert (len(examples), more.strip(), summary) == (5, "…  and 2 more", "7 records, 7 bytes, seq 1 to 7")
    assert cli.json("log", "delete", name, "--before", 3, "--dry-run")["would_delete"]["records"] == 2
    assert "not a terminal" in cli.fails(2, "log", "delete", name, "--all")
    assert "specify what to delete" in cli.fails(2, "log", "delete", name)
    assert cli.json("log", "show", name)["state"]["count"] == 8


def test_records_are_deleted_by_key_by_seq_and_all_of_them(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, *range(4), "-k", "a")
    cli.lines("log", "append", name, *range(4), "-k", "b")
    assert cli.lines("log", "delete", name, "--before", 3, "-k", "a", "--yes")[-1] == "deleted 2 records"
    assert cli.json("log", "delete", name, "--key-prefix", "b", "--yes")["deleted"] == 4
    assert cli.lines("log", "delete", name, "--all", "-y")[-1] == f"deleted 2 records and log {name}"
    assert cli.fails(3, "log", "delete", name, "--all", "--yes") == NOT_FOUND.format(name)


def test_at_a_terminal_there_are_colours_and_a_question(cli_server: ServerProcess, cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1")
    coloured, code = _at_terminal([*PROGRAM, "log", "delete", name, "--all", "--url", cli_server.url], b"n\n", {})
    assert ("\x1b[" in coloured, "Delete permanently? [y/N]" in coloured, code) == (True, True, 1)
    plain, _ = _at_terminal([*PROGRAM, "log", "tail", name, "--url", cli_server.url], b"", {"NO_COLOR": "1"})
    assert "\x1b[3" not in plain


def _at_terminal(command: list[str], typed: bytes, environment: dict[str, str]) -> tuple[str, int]:
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment}
    settings.pop("NO_COLOR", None) if "NO_COLOR" not in environment else None
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=settings) as process:
        os.close(theirs)
        os.write(ours, typed)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass  # the other end is closed
        code = process.wait(30)
    os.close(ours)
    return shown.decode(), code


def test_a_log_is_configured_and_keeps_what_is_not_named(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--max-records", "5", "--max-age", "1d")
    cli.lines("log", "append", name, *"123")
    assert cli.lines("log", "configure", name, "--max-records", "2", "--durability", "fsync", "--reject") == [
        f"configured log {name}"
    ]
    config = cli.json("log", "show", name)["state"]["config"]
    kept = {"ttl_ms": 86_400_000, "cap_records": 2, "durability": "fsync", "discard": "reject", "compact": False}
    assert kept.items() <= config.items()
    config = cli.json("log", "configure", name, "--max-age", "0s", "--max-records", "0", "--no-reject", "--compact")
    changed = {"ttl_ms": 0, "cap_records": 0, "discard": "old", "durability": "fsync", "compact": True}
    assert changed.items() <= config["config"].items()


def test_a_queue_is_configured(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--type", "queue", "--dead-letter", f"{name}:dead", "--max-deliveries", "3")
    options = (
        "--lease",
        "1m",
        "--retry-delay",
        "5s",
        "--retry-backoff",
        "3",
        "--retry-max",
        "1h",
        "--retry-jitter",
        "0.5",
    )
    config = cli.json("log", "configure", name, *options)["config"]
    timed = {"lease_ms": 60_000, "retry_delay_ms": 5000, "retry_backoff": 3, "retry_max_ms": 3_600_000}
    assert {**timed, "retry_jitter": 0.5, "dead_letter": f"{name}:dead", "max_deliveries": 3}.items() <= config.items()
    config = cli.json("log", "configure", name, "--dead-letter", "", "--max-deliveries", "0")["config"]
    assert (config["dead_letter"], config["max_deliveries"], config["lease_ms"]) == (None, 0, 60_000)


def test_a_configuration_that_does_not_apply_changes_nothing(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1")
    before = cli.json("log", "show", name)["state"]["config"]
    assert "nothing to change" in cli.fails(2, "log", "configure", name)
    assert "is not a queue" in cli.fails(6, "log", "configure", name, "--lease", "1m", "--max-records", "1")
    assert "not found" in cli.fails(3, "log", "configure", f"{name}-absent", "--max-records", "1")
    assert "is not a duration" in cli.fails(2, "log", "configure", name, "--max-age", "7 days")
    assert cli.json("log", "show", name)["state"]["config"] == before
