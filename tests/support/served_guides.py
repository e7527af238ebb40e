"""Guides that are followed on a server of their own; some show a file that it needs: a configuration, or declarations.

Run as a program, it follows them, or those whose names are given, and writes down what came back.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support.document_tables import ROOT
from support.guide import Follower, blocks, rewritten, settled


class ServedGuide(NamedTuple):
    """``file`` is the name in the first line of the block that is to be a file, or nothing if the server needs none;
    ``setting`` says what it is for the server, or nothing if it is its configuration."""

    path: Path
    file: str = ""
    setting: str = ""

    @contextmanager
    def follower(self, directory: Path) -> Iterator[Follower]:
        from support.server_process import ServerProcess

        (directory / "followed").mkdir()
        server = ServerProcess(directory / "data", **self._given(directory)).start()
        follower = Follower(server.port, directory / "followed", directory)
        try:
            yield follower
        finally:
            follower.close()
            server.end()

    def _given(self, directory: Path) -> dict[str, Any]:
        """What the server is started with."""
        if not self.file:
            return {}
        (text,) = [block.text for block in blocks(self.path.read_text()) if block.text.startswith(f"# {self.file}\n")]
        file = directory / self.file
        file.write_text(text)
        return {"settings": {self.setting: file}} if self.setting else {"config": file}

    def check(self, directory: Path) -> None:
        """Follow it, and see that everything comes back that it shows."""
        with self.follower(directory) as following:
            for block, said in following.follow(self.path.read_text()):
                assert settled(said) == settled(block.text), f"{said}\nwrite the answers again with: make docs-answers"


COLLECTIONS = ServedGuide(ROOT / "docs/tutorials/collections.md", "collections.toml")
TABLES = ServedGuide(ROOT / "docs/tutorials/tables.md", "polls.py", "declare")
QUEUES = ServedGuide(ROOT / "docs/tutorials/queues.md")
GUIDES = {guide.path.stem: guide for guide in (COLLECTIONS, TABLES, QUEUES)}


def _main() -> None:
    for name in sys.argv[1:] or GUIDES:
        guide = GUIDES[name]
        with tempfile.TemporaryDirectory() as temporary, guide.follower(Path(temporary)) as following:
            guide.path.write_text(rewritten(guide.path.read_text(), following))


if __name__ == "__main__":
    _main()
