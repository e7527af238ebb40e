"""SQL where the extra `lake` is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from strandline.engine import Batch, Engine
from strandline.lake.layout import records
from strandline.lake.location import Lake

PROGRAM = """
import sys

sys.modules["deltalake"] = None
from strandline.cli.main import main

main()
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "sql", "select count(*) as n from orders", "--csv", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_lake_that_cannot_be_read_says_what_to_install(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "data" / "lake"
    with Engine.open(data, background=False) as engine:
        engine.create("orders").wait().append(Batch([b"1", b"2"])).wait()
    done = run("--data", data)
    assert (done.stdout, done.stderr, done.returncode) == ("n\n2\n", "", 0), "there is no lake"
    records(Lake.at(lake)).snapshot().commit(progress={"1": 1})
    done = run("--data", data)
    message = f"cannot read the lake at {lake}: the Python package 'deltalake' is not installed: "
    message += "pip install 'strandline[lake]'"
    assert (done.stdout, done.returncode) == ("n\n2\n", 0)
    assert done.stderr == f"strandline: warning: {message}; reading everything from the logs\n"
    done = run("--data", data, "--lake", lake)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == f"strandline: {message}\n"
