"""What short commands import: a command starts as quickly as its imports."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from importlib import import_module

import pytest
from support.document_tables import ROOT
from support.server_process import ServerProcess

from strandline.cli.startup import quick_imports

#: Runs a command, and lists what was imported.
PROGRAM = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv[0] = "strandline"
from strandline.cli.main import main
main()
"""
#: What no short command needs.
LARGE = {"asyncio", "cryptography", "click", "http.server", "nacl", "numpy", "pyarrow", "pydantic", "pygments"}
#: What a command without a request does not need.
CLIENT = {"httpcore", "httpx", "msgspec", "ssl", "strandline.client"}
OTHER = ("queue", "serve", "sql", "verify", "backup", "pipeline", "import_")
OTHER_COMMANDS = {f"strandline.cli.{name}" for name in OTHER}


def imported(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it imports."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT, env={**os.environ, **environment}
    )
    return done.stdout, set(done.stderr.split())


def completed(words: str, **environment: str) -> tuple[str, set[str]]:
    """What bash gets when a person presses the tab key after these words."""
    number = len(words.split(" ")) - 1
    return imported(_STRANDLINE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(number), **environment)


@pytest.mark.parametrize("arguments", [("--version",), ("log", "--help"), ("--help",)])
def test_help_imports_neither_the_client_nor_other_commands(arguments: tuple[str, ...]) -> None:
    output, modules = imported(*arguments)
    assert output
    unneeded = {"asyncio", "numpy", "pyarrow", "pydantic", *OTHER_COMMANDS}
    if arguments == ("--help",):
        unneeded |= CLIENT | {"strandline.cli.log"}
    assert modules & unneeded == set()


def test_a_request_imports_one_client_and_one_command(server: ServerProcess) -> None:
    server.client().write("startup-a", [{"data": 1}])
    for arguments in (("log", "ls", "--prefix", "startup", "--limit", "5"), ("log", "show", "startup-a", "--json")):
        output, modules = imported(*arguments, STRANDLINE_URL=server.url, STRANDLINE_KEY="")
        assert "startup-a" in output
        unneeded = {*LARGE, *OTHER_COMMANDS, "rich.console", "strandline.client.collection_calls"}
        assert modules & unneeded == set()


def test_completion_imports_only_what_it_asks(server: ServerProcess) -> None:
    output, modules = completed("strandline ro")
    assert output.split() == ["router"]
    assert modules & {*LARGE, *CLIENT, "rich.console", "strandline.cli.log"} == set()
    output, modules = completed("strandline log ta")
    assert output.split() == ["tail"]
    assert modules & {*LARGE, *OTHER_COMMANDS, "httpx", "rich.console"} == set()
    _, modules = completed("strandline log tail startup-", STRANDLINE_URL=server.url, STRANDLINE_KEY="")
    assert "strandline.client.synchronous.client" in modules
    assert modules & {*LARGE, *OTHER_COMMANDS, "rich.console"} == set()


def test_garbage_is_collected_again_after_imports() -> None:
    with quick_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ModuleNotFoundError), quick_imports():
        import_module("strandline.absent")
    assert gc.isenabled()
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled(), "the program has disabled it"
    finally:
        gc.enable()
