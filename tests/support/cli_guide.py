"""The guide to the command line, followed on a server of its own, whose data directory is ``data``.

Run as a program, it writes down what came back.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from support.document_tables import ROOT
from support.guide import Follower, rewritten

GUIDE = ROOT / "docs/how-to/cli.md"


def make_follower(port: int, directory: Path) -> Follower:
    """In a directory in which ``data`` is the server's, as the guide has it."""
    followed = directory / "followed"
    followed.mkdir()
    (followed / "data").symlink_to(directory / "data")
    return Follower(port, followed, directory)


def _main() -> None:
    from support.server_process import ServerProcess

    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        server = ServerProcess(directory / "data").start()
        follower = make_follower(server.port, directory)
        try:
            GUIDE.write_text(rewritten(GUIDE.read_text(), follower))
        finally:
            follower.close()
            server.end()


if __name__ == "__main__":
    _main()
