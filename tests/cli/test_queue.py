from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from time import monotonic, sleep

import pytest
from support.command_line import Cli

PROGRAM = [sys.executable, "-m", "strandline"]
PATIENCE_SECONDS = 60.0


@pytest.fixture
def queue(cli: Cli, name: str) -> str:
    cli.lines("log", "create", name, "--type", "queue", "--max-deliveries", 2, "--dead-letter", f"{name}:dead")
    return name


def test_the_jobs_of_a_queue_are_looked_at_without_taking_any(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, '{"to":"ann"}', '{"to":"bob"}')
    words = cli.words("queue", "peek", queue, "-n", 1)
    assert (words[0][-1], words[1], words[2]) == ('{"to":"ann"}', ["ready", "2"], ["leased", "0"])
    assert words[5:] == [
        ["dropped", "0"],
        words[6],
        ["throughput", "0", "jobs/s"],
        ["failure", "rate", "0.0%"],
        words[9],
    ]
    assert words[6][:2] == ["oldest", "ready"]
    peeked = cli.json("queue", "peek", queue, "--after", 1)
    assert ([job["seq"] for job in peeked["jobs"]], peeked["ready"]) == ([2], 2)
    assert peeked["oldest_ready_ms"] >= 0
    assert (peeked["dropped"], peeked["throughput"], peeked["failure_rate"]) == (0, 0, 0)


def test_the_last_failure_of_a_job_is_shown_without_taking_it(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, '"a"', '"b"', '"c"', '"d"')
    cli.lines("queue", "claim", queue, "-n", 3, "--node", "w")
    cli.lines("queue", "nack", queue, 1, "--node", "w", "--reason", "no such\naddress")
    cli.lines("queue", "nack", queue, 2, "--node", "w", "--delay", "1h", "--reason", "busy")
    cli.lines("queue", "nack", queue, 3, "--node", "w")

    def shown() -> list[str]:
        """The jobs and their failures, without the counters."""
        jobs = takewhile(lambda line: not line.startswith("ready"), cli.lines("queue", "peek", queue))
        return [line.split("  ")[-1].strip() for line in jobs]

    reasons = ["failed on delivery 1: no such …", "failed on delivery 1: busy"]
    assert shown() == ['"a"', reasons[0], '"b"', reasons[1], '"c"', '"d"']
    (job,) = cli.json("queue", "claim", queue, "--node", "w")["jobs"]
    assert (job["seq"], job["failures"][0]["reason"]) == (1, "no such\naddress")
    assert shown()[1] == reasons[0], "also while it is leased"
    first, second, *others = cli.json("queue", "peek", queue)["jobs"]
    assert first["failures"] == job["failures"]
    assert [failure["reason"] for failure in second["failures"]] == ["busy"]
    assert [other.get("failures") for other in others] == [None, None]


def test_rates_are_shown(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, "1", "2")
    cli.lines("queue", "claim", queue, "-n", 2)
    cli.lines("queue", "ack", queue, 1)
    cli.lines("queue", "nack", queue, 2, "--delay", "1h")
    words = cli.words("queue", "peek", queue, "-n", 0)
    assert ["failure", "rate", "50.0%"] in words
    assert not [line for line in words if line[:2] == ["oldest", "ready"]]
    assert cli.json("queue", "peek", queue)["throughput"] > 0


def test_a_job_is_claimed_and_returned_with_a_reason(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, '{"to":"ann"}', "-k", "mail")
    columns, job = cli.words("queue", "claim", queue, "--lease", "10m")
    assert columns == ["seq", "lease", "ends", "delivery", "key", "last", "failure", "data"]
    assert (job[0], job[-3:]) == ("1", ["1", "mail", '{"to":"ann"}'])
    assert cli.lines("queue", "claim", queue) == ["no job is ready"]
    assert cli.lines("queue", "nack", queue, 1, "--reason", "no such\naddress") == ["returned 1 job"]
    _, job = cli.words("queue", "claim", queue, "--node", "other")
    assert job[-6:] == ["2", "mail", "no", "such", "…", '{"to":"ann"}']
    message = cli.fails(6, "queue", "ack", queue, 1)
    assert "not leased to worker 'cli@" in message
    assert cli.lines("queue", "ack", queue, 1, "--node", "other") == ["completed 1 job"]
    assert "seq 1" in cli.fails(6, "queue", "nack", queue, 1, "--node", "other")


def test_all_failures_of_a_claimed_job_are_printed_as_json(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--type", "queue", "--retry-delay", "1h", "--retry-max", "1h")
    cli.lines("log", "append", name, '{"to":"ann"}')
    for reason in ("first", "second"):
        cli.lines("queue", "claim", name, "--node", "w")
        cli.lines("queue", "nack", name, 1, "--node", "w", "--reason", reason, "--delay", "0s")
    (job,) = cli.json("queue", "claim", name, "--node", "w")["jobs"]
    assert [(each["delivery"], each["node"], each["reason"]) for each in job["failures"]] == [
        (1, "w", "first"),
        (2, "w", "second"),
    ]
    assert (job["seq"], job["key"], job["deliveries"], job["data"]) == (1, None, 3, {"to": "ann"})
    assert job["lease_id"]
    # Without a delay of its own, the job waits as long as the queue is configured.
    assert cli.json("queue", "nack", name, 1, "--node", "w")["nacked"] == 1
    assert cli.json("queue", "peek", name)["delayed"] == 1


def test_dead_letters_are_printed_with_their_reasons(cli: Cli, queue: str) -> None:
    assert cli.lines("queue", "dead-letters", queue) == [f"no dead letters in {queue}:dead"]
    cli.lines("log", "append", queue, "1", "2", "3", "-k", "mail")
    for reason in ("no address", "x" * 300):
        cli.lines("queue", "claim", queue, "-n", 3)
        cli.lines("queue", "nack", queue, 1, 2, 3, "--reason", reason)
    header, first, *_, more = cli.words("queue", "dead-letters", queue, "-n", 2)
    assert header == ["seq", "failed", "queue", "job", "deliveries", "key", "reason", "data"]
    assert (first[0], first[2:6], first[-2], first[-1]) == ("1", [queue, "1", "2", "mail"], "x" * 99 + "…", "1")
    assert more[-2:] == ["--after", "2"]
    found = cli.json("queue", "dead-letters", f"{queue}:dead", "--after", 2)
    assert found["log"] == f"{queue}:dead"
    (letter,) = found["dead_letters"]
    assert (letter["seq"], letter["key"], letter["job_seq"], letter["data"]) == (3, "mail", 3, 3)
    assert [each["reason"] for each in letter["failures"]] == ["no address", "x" * 300]

    told = cli.lines("queue", "redrive", queue, "--seq", 2)
    assert told == [f"moved 1 job (1 to {queue}); 2 remain in {queue}:dead"]
    assert f"dead letter 2 of '{queue}:dead' not found" in cli.fails(3, "queue", "redrive", queue, "--seq", 2)
    assert [job["data"] for job in cli.json("queue", "claim", queue, "-n", 3)["jobs"]] == [2]
    assert "name it with --seq" in cli.fails(2, "queue", "redrive", queue, "--data", "{}")
    assert "not valid JSON" in cli.fails(2, "queue", "redrive", queue, "--seq", 1, "--data", "{")
    cli.lines("queue", "redrive", queue, "--seq", 3, "--data", '{"to":"bob"}')
    assert [job["data"] for job in cli.json("queue", "claim", queue, "-n", 3)["jobs"]] == [{"to": "bob"}]

    cli.lines("log", "delete", queue, "--all", "--yes")
    refused = cli.fails(6, "queue", "redrive", f"{queue}:dead", "--seq", 1)
    assert f"queue '{queue}' does not exist or accepts no jobs" in refused
    assert "not found" in cli.fails(3, "queue", "redrive", f"{queue}:dead", "--seq", 1, "-k", "other")


def test_a_queue_is_created_with_a_backoff(cli: Cli, name: str) -> None:
    options = ("--retry-delay", "1s", "--retry-backoff", 3, "--retry-max", "10m", "--retry-jitter", 0.5)
    assert "are for queues" in cli.fails(2, "log", "create", name, *options)
    config = cli.json("log", "create", name, "--type", "queue", *options)["config"]
    assert [config[f"retry_{part}"] for part in ("delay_ms", "backoff", "max_ms", "jitter")] == [1000, 3, 600_000, 0.5]
    words = cli.words("log", "show", name)
    assert ["retry", "delay", "1s"] in words
    assert ["retry", "max", "10m"] in words
    assert "Invalid value for '--retry-jitter'" in cli.fails(2, "log", "create", name, "--retry-jitter", 2)


def test_a_command_is_run_for_each_job(queue: str, cli: Cli, tmp_path: Path) -> None:
    cli.lines("log", "append", queue, '{"to":"ann"}', '{"to":"nobody"}', '{"to":"bob"}', "-k", "mail")
    script = (
        'read l; echo "$STRANDLINE_RECORD_KEY $l" >> done; '
        'case "$l" in *nobody*) echo "asking" >&2; echo "no such person" >&2; exit 3;; esac'
    )
    options = ["--until-empty", "--retry-after", "0s", "-c", "2", "--url", cli.url]
    done = subprocess.run(
        [*PROGRAM, "queue", "work", queue, *options, "--", "sh", "-c", script],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "strandline: finished: 2 jobs done, 2 failures"
    assert "strandline: job 2 failed on delivery 2: exit code 3: no such person" in done.stderr.splitlines()
    assert done.stderr.splitlines().count("asking") == 2
    (letter,) = cli.json("queue", "dead-letters", queue)["dead_letters"]
    assert letter["reason"] == "exit code 3: no such person\nasking\nno such person"
    lines = sorted((tmp_path / "done").read_text().splitlines())
    assert lines == ['mail {"to":"ann"}', 'mail {"to":"bob"}', 'mail {"to":"nobody"}', 'mail {"to":"nobody"}']
    assert cli.json("queue", "peek", queue)["dead_lettered"] == 1


def test_dead_letters_are_given_another_chance(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, "1", "-k", "a")
    command = [*PROGRAM, "queue", "work", queue, "--until-empty", "--retry-after", "0s", "--json", "--url", cli.url]
    done = subprocess.run([*command, "--", "false"], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["seq"], row["key"], row["deliveries"], row["exit_code"], row["reason"]) for row in rows] == [
        (1, "a", 1, 1, "exit code 1"),
        (1, "a", 2, 1, "exit code 1"),
    ]
    told = cli.lines("queue", "redrive", queue)
    assert told == [f"moved 1 job (1 to {queue}); 0 remain in {queue}:dead"]
    assert cli.json("queue", "redrive", f"{queue}:dead")["redriven"] == 0
    assert cli.json("queue", "peek", queue)["ready"] == 1


def test_a_command_whose_child_outlives_it_is_over_when_it_ends(cli: Cli, queue: str, tmp_path: Path) -> None:
    cli.lines("log", "append", queue, "1")
    # The child keeps standard error open until the worker has reported the job.
    script = "(while [ ! -e reported ]; do sleep 0.01; done) & echo broken >&2; exit 4"
    command = [
        *PROGRAM,
        "queue",
        "work",
        queue,
        "--retry-after",
        "1h",
        "--json",
        "--url",
        cli.url,
        "--",
        "sh",
        "-c",
        script,
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as worker:
        try:
            assert worker.stdout is not None
            row = json.loads(worker.stdout.readline())
            assert (row["exit_code"], row["reason"]) == (4, "exit code 4: broken")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE_SECONDS) == 0
        finally:
            (tmp_path / "reported").touch()
            worker.kill()


def test_a_command_that_is_killed_says_so(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, "1")
    command = [*PROGRAM, "queue", "work", queue, "--until-empty", "--retry-after", "0s", "--url", cli.url]
    done = subprocess.run(
        [*command, "--", "sh", "-c", "kill -KILL $$"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert "strandline: job 1 failed on delivery 1: ended by SIGKILL" in done.stderr.splitlines()


def test_where_there_were_never_dead_letters_none_is_moved(cli: Cli, queue: str) -> None:
    assert cli.lines("queue", "redrive", queue) == [f"moved 0 jobs; 0 remain in {queue}:dead"]


def test_a_job_is_done_though_nobody_hears_of_it(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, "1")
    command = [*PROGRAM, "queue", "work", queue, "--until-empty", "--json", "--url", cli.url, "--", "true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stderr is not None
            worker.stdout.close()
            said = worker.stderr.read()
            assert worker.wait(PATIENCE_SECONDS) == 1
        finally:
            worker.kill()
    assert said == "strandline: stopped, because standard output cannot be written: Broken pipe\n"
    peeked = cli.json("queue", "peek", queue)
    assert (peeked["ready"], peeked["in_flight"], peeked["delayed"], peeked["dead_lettered"]) == (0, 0, 0, 0)


def test_a_worker_that_is_told_to_stop_finishes_its_job(cli: Cli, queue: str, tmp_path: Path) -> None:
    cli.lines("log", "append", queue, "1", "2")
    script = "touch begun; while [ ! -e go ]; do sleep 0.01; done; touch ended"
    command = [*PROGRAM, "queue", "work", queue, "--url", cli.url, "--", "sh", "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as worker:
        try:
            _wait_for(tmp_path / "begun")
            worker.send_signal(signal.SIGTERM)
            (tmp_path / "go").touch()
            _, said = worker.communicate(timeout=PATIENCE_SECONDS)
            assert (worker.returncode, said) == (0, "strandline: finished: 1 job done, 0 failures\n")
        finally:
            worker.kill()
    assert (tmp_path / "ended").exists()
    assert cli.json("queue", "peek", queue)["ready"] == 1


def test_a_worker_that_is_told_twice_ends_the_command_too(cli: Cli, queue: str, tmp_path: Path) -> None:
    cli.lines("log", "append", queue, "1")
    # Told is not only the one that was started.
    script = "(trap 'touch told; exit 9' TERM; touch begun; while :; do sleep 0.01; done); touch ended"
    command = [*PROGRAM, "queue", "work", queue, "--url", cli.url, "--", "sh", "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as worker:
        try:
            _wait_for(tmp_path / "begun")
            deadline = monotonic() + PATIENCE_SECONDS
            while not (tmp_path / "told").exists() and monotonic() < deadline:
                worker.send_signal(signal.SIGINT)
                sleep(0.05)
            worker.communicate(timeout=PATIENCE_SECONDS)
            assert worker.returncode == 0
        finally:
            worker.kill()
    peeked = cli.json("queue", "peek", queue)
    assert peeked["ready"] + peeked["delayed"] == 1


def test_what_cannot_be_worked_on_is_refused(cli: Cli, queue: str, name: str) -> None:
    assert "program '/no/such/program' not found" in cli.fails(2, "queue", "work", queue, "--", "/no/such/program")
    cli.lines("log", "append", f"{name}-log", "1")
    assert "is not a queue" in cli.fails(6, "queue", "work", f"{name}-log", "--", "true")
    assert "is not a queue" in cli.fails(6, "queue", "peek", f"{name}-log")
    for command in (
        ("work", f"{name}-none", "--", "true"),
        ("peek", f"{name}-none"),
        ("redrive", f"{name}-none"),
        ("dead-letters", f"{name}-none"),
        ("claim", f"{name}-none"),
        ("nack", f"{name}-none", 1),
    ):
        assert f"queue '{name}-none' not found" in cli.fails(3, "queue", *command)
    cli.lines("log", "create", f"{name}-plain", "--type", "queue")
    assert "no dead-letter log" in cli.fails(6, "queue", "redrive", f"{name}-plain")
    assert "no dead-letter log" in cli.fails(6, "queue", "dead-letters", f"{name}-plain")


def _wait_for(file: Path) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while not file.exists():
        assert monotonic() < deadline, f"{file.name} did not come"
        sleep(0.01)


def test_jobs_are_enqueued_with_priority_and_delay(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--type", "queue")
    assert cli.lines("queue", "enqueue", name, "1", "2", "-k", "ann") == ["enqueued 2 jobs, seq 1 to 2"]
    assert cli.lines("queue", "enqueue", name, '"urgent"', "--priority", "10") == ["enqueued 1 job, seq 3"]
    assert cli.json("queue", "enqueue", name, "--delay", "1h", input='"later"\n"too"\n')["enqueued"] == 2
    (job,) = cli.json("queue", "claim", name, "--node", "me")["jobs"]
    assert (job["data"], job["priority"]) == ("urgent", 10)
    # The same jobs again.
    once = ("queue", "enqueue", name, "5", "--idempotency-key", "once")
    assert cli.json(*once) == {"queue": name, "enqueued": 1, "repeated": 0, "first": 6, "last": 6}
    assert cli.lines(*once) == ["enqueued 0 jobs; skipped 1 enqueued before"]
    (row,) = [one for one in cli.json("queue", "ls", "--prefix", name)["queues"] if one["queue"] == name]
    assert (row["ready"], row["in_flight"], row["delayed"]) == (3, 1, 2)
    header, cells = cli.words("queue", "ls", "--prefix", name)
    assert header[:4] == ["queue", "ready", "leased", "delayed"]
    assert cells[:4] == [name, "3", "1", "2"]


def test_only_queues_are_listed_and_take_jobs(cli: Cli, name: str) -> None:
    cli.lines("log", "append", f"{name}-log", "1")
    assert "is not a queue" in cli.fails(6, "queue", "enqueue", f"{name}-log", "1")
    assert "not found" in cli.fails(3, "queue", "enqueue", f"{name}-absent", "1")
    cli.lines("log", "create", f"{name}-a", "--type", "queue")
    cli.lines("log", "create", f"{name}-b", "--type", "queue")
    assert "not valid JSON" in cli.fails(2, "queue", "enqueue", f"{name}-a", "1", "no JSON")
    assert [one["ready"] for one in cli.json("queue", "ls", "--prefix", name)["queues"]] == [0, 0]
    assert cli.json("queue", "ls", "--prefix", name, "--limit", "1")["more"] is True
