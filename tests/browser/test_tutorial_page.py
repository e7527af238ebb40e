"""The page of the tutorial about live pages, as its reader ends up with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.conftest import NewPage
from playwright.sync_api import expect
from support.browser_pages import served_files
from support.document_tables import ROOT
from support.served_guides import ServedGuide

pytestmark = pytest.mark.xdist_group("browser")

TUTORIAL = ServedGuide(ROOT / "docs/tutorials/live-page.md")


def test_a_message_of_one_window_appears_in_the_other(tmp_path: Path, new_context_page: NewPage) -> None:
    with TUTORIAL.follower(tmp_path) as follower:
        for _ in follower.follow(TUTORIAL.path.read_text()):
            pass
        with served_files(tmp_path / "followed" / "page") as address:
            ann, bob = new_context_page(address), new_context_page(address)
            for page in (ann, bob):
                expect(page.get_by_role("status")).to_have_text("Live")
                expect(page.get_by_role("listitem")).to_have_text(["ann: Hello"])
            ann.get_by_label("Message").fill("Anybody here?")
            ann.get_by_role("button", name="Send").click()
            bob.get_by_label("Your name").fill("bob")
            expect(bob.get_by_role("listitem")).to_have_text(["guest: Anybody here?", "ann: Hello"])
            bob.get_by_label("Message").fill("Yes")
            bob.get_by_role("button", name="Send").click()
            expect(ann.get_by_role("listitem")).to_have_text(["bob: Yes", "guest: Anybody here?", "ann: Hello"])
