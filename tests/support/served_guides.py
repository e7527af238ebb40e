"""Pages of the documentation that are followed on a server of their own, which is started as the page says.

A block of ``toml`` whose first line is ``# strandline.toml`` restarts the server with it, as its readers do. Run as a
program, this follows the pages, or those whose names are given, and writes down what came back.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from support.document_tables import ROOT
from support.guide import PATIENCE_SECONDS, Block, Follower, blocks, rewritten, settled
from support.node_program import MODULES
from support.server_process import ServerProcess

#: A command of a tutorial may start Spark.
SPARK_SECONDS = 400.0
#: The first line of a block that restarts the server.
CONFIG = "# strandline.toml\n"

#: The file of declarations or settings in the command that starts the server; the page shows its content.
_GIVEN = re.compile(r"^strandline serve\b.* --(declare|config) (\S+)$", re.MULTILINE)


class ServedGuide(NamedTuple):
    """``patience``: how long a command may take, in seconds. ``settings``: what the page tells its readers to set."""

    path: Path
    patience: float = PATIENCE_SECONDS
    settings: Mapping[str, object] = MappingProxyType({})

    @property
    def name(self) -> str:
        return self.path.stem

    @contextmanager
    def follower(self, directory: Path) -> Iterator[ServedFollower]:
        """In a directory like a clone of the project, in which ``data`` is the server's."""
        followed = directory / "followed"
        followed.mkdir()
        (followed / "data").symlink_to(directory / "data")
        (followed / "clients").symlink_to(ROOT / "clients")
        follower = ServedFollower(ServerProcess(directory / "data", **self._given(directory)).start(), directory)
        follower.patience = self.patience
        try:
            yield follower
        finally:
            follower.close()

    def _given(self, directory: Path) -> dict[str, Any]:
        """What the server is started with."""
        document = self.path.read_text()
        given = _GIVEN.search(document)
        if given is None:
            return {"settings": dict(self.settings)}
        option, name = given.groups()
        (text,) = [block.text for block in blocks(document) if block.file == name]
        file = directory / name
        file.write_text(text)
        return {"settings": {"declare": file}} if option == "declare" else {"config": file}

    def check(self, directory: Path) -> None:
        """Follow it, and see that everything comes back that it shows."""
        with self.follower(directory) as following:
            for block, said in following.follow(self.path.read_text()):
                assert settled(said) == settled(block.text), f"{said}\nwrite the answers again with: make docs-answers"


class ServedFollower(Follower):
    def __init__(self, server: ServerProcess, directory: Path) -> None:
        self.server = server
        self._root = directory
        super().__init__(server.port, directory / "followed", MODULES)

    def follow(self, document: str) -> Iterator[tuple[Block, str]]:
        is_configured = _GIVEN.search(document) is not None
        for block in blocks(document):
            if block.kind == "console":
                yield from self._run(block)
            elif block.kind == "toml" and block.text.startswith(CONFIG) and not is_configured:
                self._restart(block.text)
            else:
                self._write(block)
        assert self._beside is None, "nothing follows what was to run beside it"

    def close(self) -> None:
        super().close()
        self.server.end()

    def _restart(self, text: str) -> None:
        config = self._root / "strandline.toml"
        config.write_text(text)
        port = self.server.port
        self.server.stop()
        self.server = ServerProcess(self._root / "data", config=config).start(port)


STREAMS = ServedGuide(ROOT / "docs/reference/streams.md", settings={"webhook_allow_loopback": True})
COLLECTIONS = ServedGuide(ROOT / "docs/reference/collections.md")
TABLES = ServedGuide(ROOT / "docs/reference/tables.md")
QUEUES = ServedGuide(ROOT / "docs/reference/queues.md")
TOPICS = ServedGuide(ROOT / "docs/reference/topics.md")
CLIENT = ServedGuide(ROOT / "docs/reference/client.md")
HOW_TO = [
    ServedGuide(path) for path in sorted((ROOT / "docs/how-to").glob("*.md")) if "```console\n" in path.read_text()
]
TUTORIALS = [ServedGuide(path, SPARK_SECONDS) for path in sorted((ROOT / "docs/tutorials").glob("*.md"))]
GUIDES = {guide.name: guide for guide in (STREAMS, COLLECTIONS, TABLES, QUEUES, TOPICS, CLIENT, *HOW_TO, *TUTORIALS)}


def _main() -> None:
    for name in sys.argv[1:] or GUIDES:
        guide = GUIDES[name]
        with tempfile.TemporaryDirectory() as temporary, guide.follower(Path(temporary)) as following:
            guide.path.write_text(rewritten(guide.path.read_text(), following))


if __name__ == "__main__":
    _main()
