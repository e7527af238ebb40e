"""What ``pip install strandline`` gives, without any extra: the client, and the commands that talk to a server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.installed_package import unpack
from support.server_process import ServerProcess

PROGRAM = """
import asyncio, sys
from strandline.client import AsyncClient, Client

url = sys.argv[1]
with Client(url) as client:
    client.topic("base").write({"by": "threads"})

async def main():
    async with AsyncClient(url) as client:
        await client.topic("base").write({"by": "an event loop"})
        return [record.data["by"] async for record in client.topic("base").read()]

print(asyncio.run(main()))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "pyarrow", "starlette", "typer", "uvicorn"}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the built package and what it requires, and nothing else."""
    return unpack(tmp_path_factory.mktemp("base"))


def run(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with nothing but its own library and those packages."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return subprocess.run(
        [sys.executable, "-S", *arguments], cwd=packages, env=environment, capture_output=True, text=True, check=False
    )


def test_the_client_needs_nothing_but_what_the_package_requires(installed: Path, server: ServerProcess) -> None:
    done = run(installed, "-c", PROGRAM, server.url)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['threads', 'an event loop']", "[]"]


@pytest.mark.parametrize(
    ("command", "extra"), [("serve", "server"), ("sql", "sql"), ("verify", "server"), ("pipeline", "spark")]
)
def test_a_command_that_needs_more_says_in_one_line_what_to_install(installed: Path, command: str, extra: str) -> None:
    arguments = {"sql": ["select 1"], "verify": ["data"], "pipeline": ["run", "--data", "."]}.get(command, [])
    done = run(installed, "-m", "strandline", command, *arguments)
    assert done.returncode == 1
    assert re.fullmatch(
        r"strandline: this command needs the Python package '\w+', which is not installed; install what it needs with "
        rf"`pip install 'strandline\[{extra}\]'`\n",
        done.stderr,
    )


def test_signatures_say_what_to_install(installed: Path) -> None:
    done = run(installed, "-c", "from strandline.client import OwnIdentity")
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: signatures need the Python packages pynacl and cryptography: "
        "pip install 'strandline[collections]'"
    )


COMMANDS = """
import sys
from strandline.cli.commands import run

def strandline(*arguments):
    sys.argv = ["strandline", *arguments]
    try:
        run()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)

url = sys.argv[1]
strandline("log", "append", "base-log", '{"item": "book"}', "--key", "ann", "--url", url)
strandline("log", "tail", "base-log", "-n", "5", "--url", url)
strandline("log", "ls", "--url", url)
strandline("log", "show", "base-log", "--url", url)
strandline("log", "create", "base-jobs", "--type", "queue", "--url", url)
strandline("queue", "enqueue", "base-jobs", '{"to": "ann"}', "--url", url)
strandline("queue", "claim", "base-jobs", "--node", "w", "--url", url)
strandline("consumer", "ls", "base-log", "--url", url)
strandline("router", "ls", "--url", url)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "pyarrow", "starlette", "duckdb", "nacl"}))
"""


def test_the_commands_that_talk_to_a_server_need_nothing_more(installed: Path, server: ServerProcess) -> None:
    done = run(installed, "-c", COMMANDS, server.url)
    assert done.returncode == 0, done.stderr
    assert "book" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_modules_of_all_commands_but_those_of_a_data_directory_are_imported(installed: Path) -> None:
    program = (
        "import pkgutil, importlib, strandline.cli as cli\n"
        "missing = []\n"
        "for module in pkgutil.iter_modules(cli.__path__):\n"
        "    try:\n"
        "        importlib.import_module(f'strandline.cli.{module.name}')\n"
        "    except ModuleNotFoundError:\n"
        "        missing.append(module.name)\n"
        "print(missing)\n"
    )
    assert run(installed, "-c", program).stdout.strip() == "['backup', 'serve', 'verify']"


def test_it_is_small(installed: Path) -> None:
    size = 0
    for directory, _, files in os.walk(installed, followlinks=True):
        # A wheel that is published also has the documentation, which is here after `make docs`.
        if not directory.endswith("__pycache__") and "strandline/server/site" not in directory:
            size += sum(os.path.getsize(os.path.join(directory, name)) for name in files)
    # With the bytecode, which pip adds, it is twice as much.
    assert size < 20_000_000


def test_types_come_with_it(installed: Path) -> None:
    assert (installed / "strandline" / "py.typed").exists()
