"""The guide to the command line, followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

from support.cli_guide import GUIDE, make_follower
from support.guide import settled
from support.server_process import ServerProcess


def test_commands_print_what_the_guide_shows(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data").start()
    follower = make_follower(server.port, tmp_path)
    try:
        for block, said in follower.follow(GUIDE.read_text()):
            assert settled(said) == settled(block.text), "write the answers again with: make docs-answers"
    finally:
        follower.close()
        server.end()
