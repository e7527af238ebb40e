"""The module for browsers, under Node: its own tests against a server that does as it is told, and its types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.document_tables import ROOT
from support.node_packages import Unavailable, require_node, require_packages

from strandline.server.declarations import load
from strandline.tables.types import typescript_types
from strandline.testing import LocalServer

HERE = Path(__file__).parent
BROWSER = HERE.parents[1] / "browser"

#: Generous: the machine may be busy.
RUN_SECONDS = 240.0


def run(*command: str | Path) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def packages() -> Path:
    """Where the packages are that the tests in browsers have too."""
    try:
        return require_packages(BROWSER)
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)


@pytest.mark.parametrize("name", ["store", "any_story", "topics"])
def test_the_tests_for_node_pass(name: str) -> None:
    try:
        require_node()
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)
    run("node", "--test", f"{name}.test.mjs")


def test_topics_and_queues_under_node(tmp_path: Path) -> None:
    with LocalServer(tmp_path / "data") as server:
        program = (
            f'import * as client from "{(ROOT / "clients/js/topics.js").as_uri()}";'
            f'import {{ scenario }} from "{(HERE / "topics_scenario.mjs").as_uri()}";'
            f'console.log(await scenario(client, "{server.url}", "node"));'
        )
        run("node", "--input-type=module", "-e", program)


def test_the_types_of_answers_are_those_of_the_server() -> None:
    run(sys.executable, ROOT / "tools" / "generate_js_types.py", "--check")


def test_the_types_fit_the_module_and_its_use(packages: Path) -> None:
    run(packages / ".bin" / "tsc", "-p", "tsconfig.json")


def test_the_example_uses_the_module_and_the_types_of_its_tables_correctly(packages: Path) -> None:
    run(packages / ".bin" / "tsc", "-p", ROOT / "examples" / "poll" / "tsconfig.json")


def test_the_types_of_the_example_are_those_of_its_tables() -> None:
    written = typescript_types(load(str(ROOT / "examples" / "poll" / "polls.py")).tables)
    command = "strandline types --ts --declare examples/poll/polls.py -o examples/poll/page/tables.d.ts"
    assert (ROOT / "examples/poll/page/tables.d.ts").read_text() == written, f"write them again: {command}"
