"""The guide to streams, followed from top to bottom on a server of its own."""

from __future__ import annotations

from pathlib import Path

from support.guide import GUIDE, NEEDED, SETTINGS, Follower, settled, steps
from support.node_program import MODULES, require_packages
from support.prerequisites import need
from support.server_process import ServerProcess


def test_following_the_guide_gives_the_answers_that_it_shows(tmp_path: Path) -> None:
    need(NEEDED)
    require_packages()
    (tmp_path / "followed").mkdir()
    server = ServerProcess(tmp_path / "data", settings=SETTINGS).start()
    follower = Follower(server.port, tmp_path / "followed", MODULES)
    try:
        for block, said in follower.follow(GUIDE.read_text()):
            assert settled(said) == settled(block.text), "write the answers again with: make docs-answers"
    finally:
        follower.close()
        server.end()


def test_commands_may_be_longer_than_a_line() -> None:
    first, second = steps("$ echo 'one\n  two' \\\n  | cat\none\n  two\n$ echo three\nthree\n")
    assert first == ("echo 'one\n  two' \\\n  | cat", "one\n  two\n")
    assert second == ("echo three", "three\n")


def test_what_is_another_one_every_time_does_not_count() -> None:
    one = 'stream-cursor: 3316134\n{"ts":1794754690141,"took_ms":0.4,"token":"abc","at":"2026-11-15T10:00:00.000Z"}'
    other = 'stream-cursor: 3316135\n{"ts":1794754690142,"took_ms":12,"token":"xyz","at":"2026-11-15T10:00:01.000Z"}'
    assert settled(one) == settled(other)
    assert settled(one) != settled(other.replace('"at"', '"when"'))
