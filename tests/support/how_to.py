"""The how-to guides with commands, each followed on a server of its own.

A block of ``toml`` whose first line is ``# strandline.toml`` restarts the server with it, as its readers do. Run as a
program, it follows the guides, or those whose names are given, and writes down what came back.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.document_tables import ROOT
from support.guide import Block, Follower, blocks, rewritten, settled
from support.server_process import ServerProcess

#: Other tests follow them.
ELSEWHERE = {"use-the-command-line"}
PAGES = {
    page.stem: page
    for page in sorted((ROOT / "docs/how-to").glob("*.md"))
    if page.stem not in ELSEWHERE and "```console\n" in page.read_text()
}
#: Not a how-to guide, but it restarts its server as well.
PAGES["topics"] = ROOT / "docs/reference/topics.md"
CONFIG = "# strandline.toml\n"


class HowToFollower(Follower):
    """In a directory in which ``data`` is the server's."""

    def __init__(self, directory: Path) -> None:
        followed = directory / "followed"
        followed.mkdir()
        self._root = directory
        self._server = ServerProcess(directory / "data").start()
        (followed / "data").symlink_to(directory / "data")
        super().__init__(self._server.port, followed, directory)

    def follow(self, document: str) -> Iterator[tuple[Block, str]]:
        for block in blocks(document):
            if block.kind == "toml" and block.text.startswith(CONFIG):
                self._restart(block.text)
            elif block.kind == "console":
                yield from self._run(block)
            else:
                self._write(block)

    def close(self) -> None:
        super().close()
        self._server.end()

    def _restart(self, text: str) -> None:
        config = self._root / "strandline.toml"
        config.write_text(text)
        port = self._server.port
        self._server.stop()
        self._server = ServerProcess(self._root / "data", config=config).start(port)


@contextmanager
def following(directory: Path) -> Iterator[HowToFollower]:
    follower = HowToFollower(directory)
    try:
        yield follower
    finally:
        follower.close()


def check(page: Path, directory: Path) -> None:
    """Follow it, and see that everything comes back that it shows."""
    with following(directory) as follower:
        for block, said in follower.follow(page.read_text()):
            assert settled(said) == settled(block.text), f"{said}\nwrite the answers again with: make docs-answers"


def _main() -> None:
    for name in sys.argv[1:] or PAGES:
        with tempfile.TemporaryDirectory() as temporary, following(Path(temporary)) as follower:
            PAGES[name].write_text(rewritten(PAGES[name].read_text(), follower))


if __name__ == "__main__":
    _main()
