from __future__ import annotations

import json
import signal
import subprocess
import sys
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
    peeked = cli.json("queue", "peek", queue, "--after", 1)
    assert ([job["seq"] for job in peeked["jobs"]], peeked["ready"]) == ([2], 2)


def test_a_command_is_run_for_each_job(queue: str, cli: Cli, tmp_path: Path) -> None:
    cli.lines("log", "append", queue, '{"to":"ann"}', '{"to":"nobody"}', '{"to":"bob"}', "-k", "mail")
    script = 'read l; echo "$STRANDLINE_RECORD_KEY $l" >> done; case "$l" in *nobody*) exit 3;; esac'
    options = ["--until-empty", "--retry-after", "0s", "-c", "2", "--url", cli.url]
    done = subprocess.run(
        [*PROGRAM, "queue", "work", queue, *options, "--", "sh", "-c", script],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "strandline: finished: 2 jobs done, 2 failures"
    assert "strandline: job 2 failed on delivery 2: exit code 3" in done.stderr.splitlines()
    lines = sorted((tmp_path / "done").read_text().splitlines())
    assert lines == ['mail {"to":"ann"}', 'mail {"to":"bob"}', 'mail {"to":"nobody"}', 'mail {"to":"nobody"}']
    assert cli.json("queue", "peek", queue)["dead_lettered"] == 1


def test_dead_letters_are_given_another_chance(cli: Cli, queue: str) -> None:
    cli.lines("log", "append", queue, "1", "-k", "a")
    command = [*PROGRAM, "queue", "work", queue, "--until-empty", "--retry-after", "0s", "--json", "--url", cli.url]
    done = subprocess.run([*command, "--", "false"], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["seq"], row["key"], row["deliveries"], row["exit_code"]) for row in rows] == [
        (1, "a", 1, 1),
        (1, "a", 2, 1),
    ]
    told = cli.lines("queue", "redrive", queue)
    assert told == [f"moved 1 job (1 to {queue}); 0 remain in {queue}:dead"]
    assert cli.json("queue", "redrive", f"{queue}:dead")["redriven"] == 0
    assert cli.json("queue", "peek", queue)["ready"] == 1


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
    for command in (("work", f"{name}-none", "--", "true"), ("peek", f"{name}-none"), ("redrive", f"{name}-none")):
        assert f"queue '{name}-none' not found" in cli.fails(3, "queue", *command)
    cli.lines("log", "create", f"{name}-plain", "--type", "queue")
    assert "no dead-letter log" in cli.fails(6, "queue", "redrive", f"{name}-plain")


def _wait_for(file: Path) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while not file.exists():
        assert monotonic() < deadline, f"{file.name} did not come"
        sleep(0.01)
