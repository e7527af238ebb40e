"""The guide to the pipeline, followed: commands are run, and the blocks of ``python`` are one program.

What such a block prints stands in the block of ``text`` behind it. Run as a program, this follows the guide on a server
and a Spark of its own and writes down what came back.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from support import guide
from support.document_tables import ROOT
from support.guide import Block, Follower, blocks, rewritten

GUIDE = ROOT / "docs/tutorials/pipeline.md"
NEEDED = ("bash", "curl", "jq")
#: A command of the guide starts a Spark of its own.
PATIENCE_SECONDS = 400.0


def settled(text: str) -> str:
    """Without what is another one every time: the order of columns that are printed is not, spaces at the end are."""
    return re.sub(r"[ \t]+$", "", guide.settled(text), flags=re.MULTILINE)


class PipelineFollower(Follower):
    """In a directory in which ``data`` is the server's, as the guide has it."""

    def __init__(self, port: int, directory: Path) -> None:
        followed = directory / "followed"
        followed.mkdir()
        (followed / "data").symlink_to(directory / "data")
        super().__init__(port, followed, ROOT / "tests/conformance/node_modules")
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self.patience = PATIENCE_SECONDS

    def follow(self, document: str) -> Iterator[tuple[Block, str]]:
        printed = ""
        for block in blocks(document):
            if block.kind == "console":
                yield from self._run(block)
            elif block.kind == "python":
                printed = self._execute(block.text)
            elif block.kind == "text":
                yield block, printed

    def _execute(self, program: str) -> str:
        """Paths are relative to where the guide is followed; Spark, which was started elsewhere, is told them whole."""
        before, printed = Path.cwd(), io.StringIO()
        program = re.sub(r'(path|checkpointLocation)="(\w+)"', rf'\1="{self._directory}/\2"', program)
        os.chdir(self._directory)
        try:
            with redirect_stdout(printed):
                exec(compile(self._there(program), str(GUIDE), "exec"), self._names)
        finally:
            os.chdir(before)
        return self._here(printed.getvalue().rstrip("\n") + "\n")


def _main() -> None:
    from support.server_process import ServerProcess

    # As in an environment that is active.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        server = ServerProcess(directory / "data").start()
        follower = PipelineFollower(server.port, directory)
        try:
            GUIDE.write_text(rewritten(GUIDE.read_text(), follower))
        finally:
            follower.close()
            server.end()


if __name__ == "__main__":
    _main()
