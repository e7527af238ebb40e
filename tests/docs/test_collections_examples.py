"""The guide to collections: its configurations and its examples in Python."""

from __future__ import annotations

import doctest
import re
import sys
import tomllib
from pathlib import Path

import pytest
from support.guide import blocks
from support.served_guides import COLLECTIONS

from strandline.server.settings_sources import load

GUIDE = COLLECTIONS.path


def test_every_example_of_a_configuration_can_be_served(tmp_path: Path) -> None:
    texts = [block.text for block in blocks(GUIDE.read_text()) if block.kind == "toml"]
    assert len(texts) == 3
    for text in texts:
        path = tmp_path / "example.toml"
        path.write_text(text)
        config = load(path).collections_config()
        assert tomllib.loads(text)["collections"]
        assert [*config.collections, *config.namespaces.values()]


def test_the_example_in_python_can_be_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.server.declarations import load as load_declared

    (text,) = [block.text for block in blocks(GUIDE.read_text()) if "Roles(" in block.text]
    path = tmp_path / "collections.py"
    path.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    declared = load_declared(str(path)).collections
    assert [collection.name for collection in declared.collections] == ["rooms"]
    assert declared.roles.enricher is not None


def test_the_examples_of_a_python_program_give_what_the_guide_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = re.findall(r"^```pycon\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)
    example = doctest.DocTestParser().get_doctest("".join(texts), {}, GUIDE.name, GUIDE.name, 0)
    said: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(example, out=said.append, clear_globs=False)
    example.globs["engine"].close()
    assert results.attempted > 5
    assert results.failed == 0, "".join(said)
