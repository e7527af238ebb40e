"""Declarations: found in a file or a module, or refused with a word that helps."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.collections import Collection
from strandline.server.declarations import NOTHING, gather, load
from strandline.server.settings import BadSettings
from strandline.tables import make_log

POLL = """
from dataclasses import dataclass

from strandline.tables import Hooks, make_log


@dataclass
class Poll:
    title: str


poll = make_log("poll", parent="site", schema=Poll)
the_same = poll
"""


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What is imported, and from where, is nobody else's business."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("strandline_declarations_", "polls", "shared_")):
            del sys.modules[name]


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return name


def test_without_declarations_there_is_nothing() -> None:
    assert load("") is NOTHING


def test_a_file_declares_tables() -> None:
    declared = load(write("polls.py", POLL))
    assert [table.name for table in declared.tables] == ["poll"]
    assert (declared.identify, declared.hooks) == (None, None)


def test_a_module_declares_tables() -> None:
    write("polls_package/__init__.py", "")
    write("polls_package/declared.py", POLL)
    assert [table.name for table in load("polls_package.declared").tables] == ["poll"]


def test_a_file_may_import_what_is_beside_it() -> None:
    write("deep/shared_polls.py", POLL)
    assert [table.name for table in load(write("deep/main.py", "from shared_polls import poll")).tables] == ["poll"]


def test_what_is_beside_it_is_not_taken_for_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    write("graphlib.py", "raise RuntimeError('this is not the standard library')")
    load(write("collections.py", POLL))
    monkeypatch.delitem(sys.modules, "graphlib", raising=False)
    assert importlib.import_module("graphlib").TopologicalSorter


def test_identify_and_hooks_are_found_by_their_names() -> None:
    further = "def identify(headers):\n    return None\n\n\nhooks = Hooks(before_append=lambda ctx, payload: None)\n"
    declared = load(write("polls.py", POLL + further))
    assert declared.identify is not None
    assert declared.hooks is not None
    assert declared.hooks.before_append is not None


def test_collections_are_found_too() -> None:
    text = (
        "from strandline.collections import AppendOnly, Collection\n"
        'events = Collection(name="events", storage_path="events/{date}", read_roles=("public",), '
        'write_roles=("public",), append_only=AppendOnly())\n'
    )
    declared = load(write("polls.py", text))
    assert [collection.name for collection in declared.collections.collections] == ["events"]
    assert declared.tables == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "polls.py declares nothing"),
        ("import nothing_of_the_sort", "cannot import polls.py: No module named"),
        ("1 / 0", "cannot import polls.py: ZeroDivisionError"),
        ("def broken(:", "cannot import polls.py: SyntaxError"),
        (POLL + "\nother = make_log('poll', parent='site', schema=Poll)", "two tables have the name 'poll'"),
        (
            POLL + "\nvote = make_log('vote', parent=poll, schema=Poll)\ndel poll, the_same",
            "has the parent 'poll', which is not declared",
        ),
        (POLL + "\nidentify = 7", "identify is int; expected a function"),
        (POLL + "\nhooks = {'before_append': print}", "hooks is dict; expected Hooks("),
        (POLL + "\nmake_log('a/b', parent='site', schema=Poll)", "polls.py: a table name must have"),
    ],
)
def test_what_cannot_be_served_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadSettings) as refused:
        load(write("polls.py", text))
    assert words in str(refused.value)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"file nowhere\.py not found"):
        load("nowhere.py")
    with pytest.raises(BadSettings, match=r"module nowhere\.at_all not found"):
        load("nowhere.at_all")


def test_a_program_may_give_them_by_itself() -> None:
    note = make_log("note", parent="desk", schema={"type": "object"})
    events = Collection(name="events", storage_path="events/{date}")
    declared = gather([note, events, note])
    assert declared.tables == (note,)
    assert declared.collections.collections == (events,)
