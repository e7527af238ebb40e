"""The page about tables: every example is run, and gives what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/tutorials/tables.md"


def test_the_examples_give_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```pycon\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) > 10
    example = doctest.DocTestParser().get_doctest("".join(blocks), {}, PAGE.name, PAGE.name, 0)
    said: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(example, out=said.append, clear_globs=False)
    engine = example.globs.get("engine")
    if engine is not None:
        engine.close()
    assert results.failed == 0, "".join(said)
