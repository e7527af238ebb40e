"""The demonstration as a whole, in a process of its own, with its output in a pipe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.maven_jars import resolve
from support.prerequisites import unavailable
from support.server_process import ServerProcess

from strandline.client import Client
from strandline.pipeline.delta import PACKAGES
from strandline.pipeline.spark_session import what_is_missing

#: Most tests look at the same run, which takes its time.
pytestmark = pytest.mark.xdist_group("demo")

COMMAND = [sys.executable, "-m", "strandline", "demo"]
TITLES = [
    "A server",
    "A week of orders",
    "Written as a topic, read as a stream",
    "A queue with a dead letter",
    "A router",
    "kill -9",
    "A signed delivery note",
    "A row in a table",
    "The pipeline on Spark",
    "A search",
    "A chart",
    "Tables over logs",
    "Stop and verify",
]
#: With Spark and Delta, the chapters about declared tables are two.
ALL_TITLES = [*TITLES[:-1], "A table that moves", TITLES[-1]]


class Shown(NamedTuple):
    directory: Path
    code: int
    output: str
    errors: str


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(directory)}


def titles(output: str) -> list[str]:
    return [found[1] for line in output.splitlines() if (found := re.fullmatch(r"\d+\. (.+)", line))]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The demonstration without Spark, whose data is kept."""
    directory = tmp_path_factory.mktemp("demo") / "shop"
    command = [*COMMAND, "--no-spark", "--keep", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return Shown(directory, done.returncode, done.stdout, done.stderr)


def test_it_tells_all_chapters_and_ends_well_by_itself(shown: Shown) -> None:
    assert (shown.code, shown.errors) == (0, "")
    assert titles(shown.output) == TITLES
    assert shown.output.count("Skipped: --no-spark was given") == 2


def test_in_a_pipe_it_is_plain_lines(shown: Shown) -> None:
    assert "\x1b" not in shown.output
    assert not set("╭│╰") & set(shown.output)


@pytest.fixture(scope="module")
def kept(shown: Shown) -> Iterator[Client]:
    """A server as the last lines tell to start it, on a port of its own."""
    process = ServerProcess(shown.directory / "data", config=shown.directory / "strandline.toml")
    try:
        with Client(process.start().url, user="somebody") as client:
            yield client
    finally:
        process.end()


def test_every_order_that_was_acknowledged_is_in_the_log_once(shown: Shown, kept: Client) -> None:
    (line,) = (line for line in shown.output.splitlines() if "orders at the end" in line)
    acknowledged, counted = (int(number.replace(",", "")) for number in line.split()[-2:])
    found = Counter(order["order"] for order in kept.stream("orders").read())
    assert acknowledged == counted == len(found) == found.total()


def test_what_was_kept_can_be_looked_at(shown: Shown, kept: Client) -> None:
    assert f"serve --config {shown.directory / 'strandline.toml'}" in shown.output
    assert "http://127.0.0.1:4000/console" in shown.output
    assert [letter.data["grams"] for letter in kept.topic("packing:dead").read()] == [-1]
    assert {record.tag for record in kept.topic("shipments:graz").read()} == {"Graz"}
    assert [row.payload["stars"] for row in kept.table("review", public=True).list("desk-lamp")] == [5]
    assert (shown.directory / "takings.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_broken_off_it_says_so_in_a_line_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [*COMMAND, "--no-spark"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+:\d+", line)))
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "strandline: demo interrupted; all its processes have ended\n"
    with Client(url) as client:
        assert not client.ready()
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = subprocess.run([*COMMAND, "--keep", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"strandline: the demo failed: {tmp_path} is not empty; specify a new directory with --keep\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_with_spark_it_shows_a_table_that_moves_and_leaves_only_the_picture(tmp_path: Path) -> None:
    missing = what_is_missing()
    if missing:
        unavailable(f"Spark is not here: {missing}")
    temporary, elsewhere = tmp_path / "temporary", tmp_path / "elsewhere"
    temporary.mkdir()
    elsewhere.mkdir()
    jars = [part for jar in resolve(PACKAGES.split(","), without_spark=True) for part in ("--jar", str(jar))]
    done = subprocess.run(
        [*COMMAND, *jars], env=environment(temporary), cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert titles(done.stdout) == ALL_TITLES
    assert "Skipped" not in done.stdout
    assert "from the indexes that Spark built" in done.stdout
    assert "from sums that the pipeline has stored" in done.stdout
    assert re.search(r"The table changed \d+ times while the orders were written", done.stdout)
    assert [path.suffix for path in temporary.iterdir()] == [".png"]
    assert list(elsewhere.iterdir()) == []
