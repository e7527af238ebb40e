"""The how-to guides: commands give the answers that the pages show, and every program of a page is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import how_to
from support.prerequisites import need

#: Programs of other products that a page shows beside what replaces them.
BEFORE = "before_"


@pytest.mark.parametrize("name", how_to.PAGES)
def test_following_a_page_gives_the_answers_that_it_shows(name: str, tmp_path: Path) -> None:
    need(("bash", "curl", "jq"))
    how_to.check(how_to.PAGES[name], tmp_path)


@pytest.mark.parametrize("name", how_to.PAGES)
def test_every_program_of_a_page_is_run(name: str) -> None:
    document = how_to.PAGES[name].read_text()
    programs = re.findall(r"^```python\n# (\S+)$", document, flags=re.MULTILINE)
    assert document.count("```python\n") == len(programs), "a program without a name"
    run = set(re.findall(r"^\$ .*\bpython (\S+)", document, flags=re.MULTILINE))
    assert {program for program in programs if not program.startswith(BEFORE)} == run
    for program in programs:
        if program.startswith(BEFORE):
            (text,) = re.findall(rf"^```python\n(# {program}\n.*?)^```", document, flags=re.MULTILINE | re.DOTALL)
            compile(text, program, "exec")
