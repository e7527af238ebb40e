"""The guides, tutorials and references with commands: following a page gives the answers that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.guide import NEEDED, blocks, settled, steps
from support.maven_jars import resolve
from support.node_program import require_packages
from support.prerequisites import need
from support.served_guides import COLLECTIONS, GUIDES, TABLES, ServedGuide

from strandline.pipeline.delta import PACKAGES

#: Programs of other products that a page shows beside what replaces them.
BEFORE = "before_"
#: Pages with examples that are not files; other tests run those.
WITH_EXAMPLES = (COLLECTIONS, TABLES)

each_guide = pytest.mark.parametrize("guide", GUIDES.values(), ids=list(GUIDES))


@each_guide
def test_following_a_page_gives_the_answers_that_it_shows(guide: ServedGuide, tmp_path: Path) -> None:
    need(NEEDED)
    require_packages()
    if "--project" in guide.path.read_text():
        # Spark finds the jars of Delta in the repository of Maven on this machine.
        resolve(PACKAGES.split(","), without_spark=True)
    guide.check(tmp_path)


@each_guide
def test_every_program_of_a_page_is_run(guide: ServedGuide) -> None:
    document = guide.path.read_text()
    programs = {block.file: block.text for block in blocks(document) if block.kind == "python"}
    if guide in WITH_EXAMPLES:
        programs.pop("", None)
    run = set(re.findall(r"^(?:\$ .*\bpython|strandline serve .*--declare) (\S+)", document, flags=re.MULTILINE))
    assert {program for program in programs if not program.startswith(BEFORE)} == run
    for program, text in programs.items():
        compile(text, program, "exec")


def test_commands_may_be_longer_than_a_line() -> None:
    first, second = steps("$ echo 'one\n  two' \\\n  | cat\none\n  two\n$ echo three\nthree\n")
    assert first == ("echo 'one\n  two' \\\n  | cat", "one\n  two\n")
    assert second == ("echo three", "three\n")


def test_what_is_another_one_every_time_does_not_count() -> None:
    one = 'stream-cursor: 3316134\n{"ts":1794754690141,"took_ms":0.4,"token":"abc","at":"2026-11-15T10:00:00.000Z"}'
    other = 'stream-cursor: 3316135\n{"ts":1794754690142,"took_ms":12,"token":"xyz","at":"2026-11-15T10:00:01.000Z"}'
    assert settled(one) == settled(other)
    assert settled(one) != settled(other.replace('"at"', '"when"'))
