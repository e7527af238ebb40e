from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_demonstration_shows_everything_and_ends_by_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "strandline", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    titles = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert titles[:-1] == [
        "A server",
        "Write and read",
        "Watch",
        "Loss is never silent",
        "Queue",
        "Router and consumer",
        "kill -9",
        "What is still there",
        "A stream",
        "History on Spark",
        "Search and add up",
        "The lake, with DuckDB",
        "Stop and verify",
    ]
    assert titles[-1].startswith("Nothing was lost.")
    assert list(tmp_path.iterdir()) == []
