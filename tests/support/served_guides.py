"""Pages that are followed on a server of their own, which is started as the page says.

Run as a program, it follows them, or those whose names are given, and writes down what came back.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support.document_tables import ROOT
from support.guide import PATIENCE_SECONDS, Follower, blocks, rewritten, settled

#: A command of a tutorial may start Spark.
SPARK_SECONDS = 400.0

#: The file of declarations or settings in the command that starts the server; the page shows its content.
_GIVEN = re.compile(r"^strandline serve\b.* --(declare|config) (\S+)$", re.MULTILINE)


class ServedGuide(NamedTuple):
    """``patience``: how long a command may take, in seconds."""

    path: Path
    patience: float = PATIENCE_SECONDS

    @contextmanager
    def follower(self, directory: Path) -> Iterator[Follower]:
        """In a directory like a clone of the project, in which ``data`` is the server's."""
        from support.server_process import ServerProcess

        followed = directory / "followed"
        followed.mkdir()
        (followed / "data").symlink_to(directory / "data")
        (followed / "clients").symlink_to(ROOT / "clients")
        server = ServerProcess(directory / "data", **self._given(directory)).start()
        follower = Follower(server.port, followed, directory)
        follower.patience = self.patience
        try:
            yield follower
        finally:
            follower.close()
            server.end()

    def _given(self, directory: Path) -> dict[str, Any]:
        """What the server is started with."""
        document = self.path.read_text()
        given = _GIVEN.search(document)
        if given is None:
            return {}
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


COLLECTIONS = ServedGuide(ROOT / "docs/reference/collections.md")
TABLES = ServedGuide(ROOT / "docs/reference/tables.md")
QUEUES = ServedGuide(ROOT / "docs/reference/queues.md")
TUTORIALS = [ServedGuide(path, SPARK_SECONDS) for path in sorted((ROOT / "docs/tutorials").glob("*.md"))]
GUIDES = {guide.path.stem: guide for guide in (COLLECTIONS, TABLES, QUEUES, *TUTORIALS)}


def _main() -> None:
    for name in sys.argv[1:] or GUIDES:
        guide = GUIDES[name]
        with tempfile.TemporaryDirectory() as temporary, guide.follower(Path(temporary)) as following:
            guide.path.write_text(rewritten(guide.path.read_text(), following))


if __name__ == "__main__":
    _main()
