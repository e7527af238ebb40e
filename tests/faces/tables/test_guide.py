"""The guide to tables, followed from top to bottom on a server of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from guide import settled
from tables_guide import GUIDE, follower

NEEDED = ("bash", "curl", "jq")


@pytest.mark.skipif(any(shutil.which(program) is None for program in NEEDED), reason="a program is not installed")
def test_following_the_guide_gives_the_answers_that_it_shows(tmp_path: Path) -> None:
    document = GUIDE.read_text()
    with follower(document, tmp_path) as following:
        for block, said in following.follow(document):
            assert settled(said) == settled(block.text), "write the answers anew with: python tests/tables_guide.py"
