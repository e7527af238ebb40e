"""The guide to tables, followed on a server with the tables that it declares. Run as a program, it writes down what
came back."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from documents import ROOT
from guide import Follower, blocks, rewritten

GUIDE = ROOT / "docs" / "tables.md"
DECLARATIONS = "# polls.py\n"


@contextmanager
def follower(document: str, directory: Path) -> Iterator[Follower]:
    from server_process import ServerProcess

    (text,) = [block.text for block in blocks(document) if block.text.startswith(DECLARATIONS)]
    declarations = directory / "polls.py"
    declarations.write_text(text)
    (directory / "followed").mkdir()
    server = ServerProcess(directory / "data", settings={"declare": declarations}).start()
    follower = Follower(server.port, directory / "followed", directory)
    try:
        yield follower
    finally:
        follower.close()
        server.end()


def _main() -> None:
    sys.path += [str(ROOT / "tests/topics")]
    document = GUIDE.read_text()
    with tempfile.TemporaryDirectory() as temporary, follower(document, Path(temporary)) as following:
        GUIDE.write_text(rewritten(document, following))


if __name__ == "__main__":
    _main()
