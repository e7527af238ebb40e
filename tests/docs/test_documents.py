from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.document_tables import GENERATED, REFERENCE, ROOT, with_table

from strandline.pipeline.source import options
from strandline.server.settings import SECTIONS
from strandline.setting import settings_of

SETTINGS = REFERENCE / "settings.md"

#: Not in the site, whose build checks the links of its own pages.
OUTSIDE = [
    *ROOT.glob("*.md"),
    *ROOT.glob("bench/*.md"),
    *ROOT.glob("clients/js/*.md"),
    *ROOT.glob("examples/*/*.md"),
    *sorted(ROOT.glob("strandline/**/*.md")),
]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("name", GENERATED)
def test_a_table_in_the_documents_says_what_the_code_says(name: str) -> None:
    path, lines = GENERATED[name]
    text = path.read_text()
    assert text == with_table(text, name, lines()), "write the tables again with: make docs-answers"


@pytest.mark.parametrize("path", OUTSIDE, ids=_path)
def test_links_outside_the_site_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        other = path.parent / file if file else path
        assert other.exists(), f"{path.name} links to {target}"
        if anchor:
            assert anchor in _anchors(other.read_text()), f"{path.name} links to {target}"


def _anchors(text: str) -> set[str]:
    """The anchors that headings get where Markdown is shown."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=_path)
def test_tests_that_documents_name_exist(path: Path) -> None:
    """A path is from the root of the project, or from ``tests/engine/`` where the document says so."""
    for file, name in re.findall(r"`([\w/]*test_\w+\.py)(?:::(\w+))?", path.read_text()):
        test = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "engine" / file
        assert test.exists(), f"{path.name} names {file}"
        assert not name or re.search(rf"^ *(?:async )?(?:def|class) {name}\b", test.read_text(), re.MULTILINE), name


def test_defaults_of_settings_are_toml() -> None:
    sections = re.findall(r"^## `\[(\w+)\]`$(.*?)(?=^## )", SETTINGS.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [section for section, _ in sections] == list(SECTIONS)
    lines = []
    for section, text in sections:
        lines.append(f"[{section}]")
        lines += [
            f"{name} = {default}" for name, default in re.findall(r"^\| `(\w+)`.*? \| `(.*?)`[^|]*\| ", text, re.M)
        ]
    document = tomllib.loads("\n".join(lines))
    assert {section: set(values) for section, values in document.items()} == {
        section: {setting.name for setting in settings_of(struct)} for section, struct in SECTIONS.items()
    }


def test_the_options_of_the_spark_source_are_those_that_it_knows() -> None:
    page = (ROOT / "docs/reference/python/spark.md").read_text()
    listed = {
        title: set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))
        for title, text in re.findall(r"^## (.*?)$(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)
    }
    place, reading = listed["Where the logs are"], listed["Where the logs are"] | listed["Reading"]
    assert reading | listed["Batch reads"] | listed["Declared tables"] == set(options.BATCH)
    assert reading | listed["Stream reads"] == set(options.STREAMING)
    assert place | listed["Writing"] == set(options.WRITING)
    assert place | listed["Writing"] | listed["Stream writes"] == set(options.STREAM_WRITING)
