"""The guide to the client, followed from top to bottom on a server of its own."""

from __future__ import annotations

import re
from pathlib import Path

from support.document_tables import ROOT
from support.guide import Follower, blocks
from support.server_process import ServerProcess

GUIDE = ROOT / "docs/tutorials/client.md"


def test_the_programs_of_the_guide_print_what_it_shows(tmp_path: Path) -> None:
    document = GUIDE.read_text()
    (declared,) = [block.text for block in blocks(document) if block.text.startswith("# declared.py\n")]
    (tmp_path / "declared.py").write_text(declared)
    (tmp_path / "followed").mkdir()
    server = ServerProcess(tmp_path / "data", settings={"declare": tmp_path / "declared.py"}).start()
    follower = Follower(server.port, tmp_path / "followed", tmp_path)
    try:
        for block, said in follower.follow(document):
            assert said == block.text
    finally:
        follower.close()
        server.end()


def test_every_program_of_the_guide_is_run() -> None:
    document = GUIDE.read_text()
    programs = set(re.findall(r"```python\n# (\S+)\n", document)) - {"declared.py"}
    assert programs == set(re.findall(r"^\$ python (\S+)", document, flags=re.MULTILINE))
    assert document.count("```python") == len(programs) + 1
