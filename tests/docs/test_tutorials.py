"""The tutorials, each followed from top to bottom on a server of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.guide import blocks
from support.prerequisites import need
from support.served_guides import TUTORIALS, ServedGuide

each_tutorial = pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda tutorial: tutorial.path.stem)


@each_tutorial
def test_following_a_tutorial_gives_the_answers_that_it_shows(tutorial: ServedGuide, tmp_path: Path) -> None:
    need(("bash", "curl", "jq"))
    tutorial.check(tmp_path)


@each_tutorial
def test_every_program_of_a_tutorial_is_run(tutorial: ServedGuide) -> None:
    document = tutorial.path.read_text()
    programs = {block.file for block in blocks(document) if block.kind == "python"}
    assert programs == set(re.findall(r"^(?:\$ python|strandline serve .*--declare) (\S+)", document, re.MULTILINE))
