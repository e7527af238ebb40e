"""The module for browsers, under Node: its own tests against a server that does as it is told, and its types."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.node_packages import Unavailable, require_node, require_packages

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


@pytest.mark.parametrize("name", ["store", "any_story"])
def test_the_tests_for_node_pass(name: str) -> None:
    try:
        require_node()
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)
    run("node", "--test", f"{name}.test.mjs")


def test_the_types_fit_the_module_and_its_use(packages: Path) -> None:
    run(packages / ".bin" / "tsc", "-p", "tsconfig.json")


def test_the_module_depends_on_nothing() -> None:
    folder = HERE.parents[2] / "clients" / "js"
    for path in folder.glob("*.js"):
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "export {")) and " from " in line:
                source = line.rpartition(" from ")[2].strip(";\"'")
                assert (folder / source).is_file(), f"{path.name}: {line}"
