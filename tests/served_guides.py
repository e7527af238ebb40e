"""Guides that are followed on a server which has what they show in a file: a configuration, or declarations.

Run as a program, it follows them and writes down what came back.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from documents import ROOT
from guide import Follower, blocks, rewritten, settled


class ServedGuide(NamedTuple):
    """``file`` is the name in the first line of the block that is to be a file; ``setting`` says what it is for the
    server, or nothing if it is its configuration."""

    path: Path
    file: str
    setting: str = ""

    @contextmanager
    def follower(self, directory: Path) -> Iterator[Follower]:
        from server_process import ServerProcess

        (text,) = [block.text for block in blocks(self.path.read_text()) if block.text.startswith(f"# {self.file}\n")]
        file = directory / self.file
        file.write_text(text)
        (directory / "followed").mkdir()
        given = {"settings": {self.setting: file}} if self.setting else {"config": file}
        server = ServerProcess(directory / "data", **given).start()
        follower = Follower(server.port, directory / "followed", directory)
        try:
            yield follower
        finally:
            follower.close()
            server.end()

    def check(self, directory: Path) -> None:
        """Follow it, and see that everything comes back that it shows."""
        with self.follower(directory) as following:
            for block, said in following.follow(self.path.read_text()):
                assert settled(said) == settled(block.text), "write the answers anew: python tests/served_guides.py"


COLLECTIONS = ServedGuide(ROOT / "docs" / "collections.md", "collections.toml")
TABLES = ServedGuide(ROOT / "docs" / "tables.md", "polls.py", "declare")


def _main() -> None:
    sys.path += [str(ROOT / "tests/topics")]
    for guide in (COLLECTIONS, TABLES):
        with tempfile.TemporaryDirectory() as temporary, guide.follower(Path(temporary)) as following:
            guide.path.write_text(rewritten(guide.path.read_text(), following))


if __name__ == "__main__":
    _main()
