"""The examples of the README, run as they are printed; only host and port are others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.document_tables import ROOT
from support.server_process import ServerProcess

#: No example takes this long, unless it never ends.
PATIENCE_SECONDS = 30

#: What an event stream says when it has told everything; of topics, and of streams.
CAUGHT_UP = ("event: caught-up\n", "event: control\n")

ADDRESS = "127.0.0.1:4000"
EXAMPLES = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("curl ")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("readme") / "data")
    try:
        yield process.start()
    finally:
        process.end()


def run(command: str, server: ServerProcess) -> str:
    """What the command prints: all of it, or of an event stream what comes until it has caught up."""
    printed = command.replace(ADDRESS, server.url.removeprefix("http://"))
    with subprocess.Popen(
        ["timeout", str(PATIENCE_SECONDS), "bash", "-c", printed],
        env={**os.environ, "no_proxy": "*"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        if command.startswith("curl -N"):
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line in CAUGHT_UP:
                    break
            process.terminate()
            return "".join(lines)
        output, _ = process.communicate()
    assert process.returncode == 0, f"{command} ended with {process.returncode}"
    return output


def test_the_examples_work_in_the_order_in_which_they_are_printed(server: ServerProcess) -> None:
    assert len(EXAMPLES) >= 11
    for command in EXAMPLES:
        output = run(command, server)
        assert output, command
        assert '"error"' not in output, f"{command}: {output}"
        if command.startswith("curl -N"):
            assert "event: record" in output or "event: data" in output


def test_the_examples_are_for_the_server_that_make_run_starts() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^run: .*\n\t\$\(BIN\)/strandline serve --data data$", makefile, flags=re.MULTILINE)
    assert all(f"http://{ADDRESS}/" in line or f"http://{ADDRESS}$" in line for line in EXAMPLES)


def test_the_program_in_the_readme_runs(server: ServerProcess, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    printed = program.replace(f"http://{ADDRESS}", server.url)
    assert printed != program
    done = subprocess.run([sys.executable, "-c", printed], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["2", "3", "delivered"]
