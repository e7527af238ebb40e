"""The guide to queues, followed from top to bottom on a server of its own."""

from __future__ import annotations

import re
from pathlib import Path

from support.served_guides import QUEUES


def test_following_the_guide_gives_the_answers_that_it_shows(tmp_path: Path) -> None:
    QUEUES.check(tmp_path)


def test_every_program_of_the_guide_is_run() -> None:
    document = QUEUES.path.read_text()
    programs = set(re.findall(r"```python\n# (\S+)\n", document))
    assert programs == set(re.findall(r"^\$ python (\S+)", document, flags=re.MULTILINE))
    assert document.count("```python") == len(programs)
