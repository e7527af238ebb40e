"""The check of phrases that make texts hard to read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.document_tables import ROOT


def check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "check_language.py"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", "One.\n\nWhoever reads\n", ["3: 'Whoever'"]),
        ("a.md", "A text where a reader is\ntold something.\n", ["1: 'is told'"]),
        ("a.py", 'x = 1\ny = "it is no queue"\n', ["2: 'is no queue'"]),
        ("a.py", '"""One line.\n\nWhat goes\n    on.\n"""\n', ["3: 'goes on'"]),
        ("a.py", "# A comment that makes\n# no sense.\nx = 1\n", ["1: 'makes no sense'"]),
        ("a.html", "<p>Delete it for good</p>\n", ["1: 'for good'"]),
    ],
)
def test_a_phrase_is_reported_with_its_file_and_line(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    done = check(path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [": ".join(line.removeprefix(f"{path}:").split(": ")[:2]) for line in lines] == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "There is no queue.\n"),
        ("a.py", "nobody = 1\n"),
        ("a.py", 'x = "nobody"  # language: ok\n'),
        ("a.md", "The server waits as long as it takes; it is no longer needed.\n"),
    ],
)
def test_plain_text_code_and_marked_lines_pass(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    done = check(path)
    assert (done.returncode, done.stdout) == (0, "")
