"""The guide to tables, followed from top to bottom on a server of its own."""

from __future__ import annotations

from pathlib import Path

from support.served_guides import TABLES


def test_following_the_guide_gives_the_answers_that_it_shows(tmp_path: Path) -> None:
    TABLES.check(tmp_path)
