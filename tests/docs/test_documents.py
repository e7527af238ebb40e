from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.document_tables import GENERATED, ROOT, with_table

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
