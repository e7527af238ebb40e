"""The page of the guestbook, as the reader of its tutorial ends up with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from browser.conftest import NewPage
from playwright.sync_api import Page, expect
from support.browser_pages import served_files
from support.served_guides import GUIDES

pytestmark = pytest.mark.xdist_group("browser")

TUTORIAL = GUIDES["guestbook"]
HELLO = "ann: Hello"


def test_visitors_see_the_entries_of_others_also_after_a_restart(tmp_path: Path, new_context_page: NewPage) -> None:
    with TUTORIAL.follower(tmp_path) as follower:
        for _ in follower.follow(TUTORIAL.path.read_text()):
            pass
        with served_files(tmp_path / "followed" / "page") as address:
            bob, cat = new_context_page(address), new_context_page(address)
            for page in (bob, cat):
                expect(page.get_by_role("status")).to_have_text("Live")
                expect(page.get_by_role("listitem")).to_have_text([HELLO])
            write(bob, "not a token", "Anybody here?")
            expect(bob.get_by_role("alert")).to_have_text("the token is not valid: sign in again")
            expect(bob.get_by_role("status")).to_have_text("Live")
            expect(bob.get_by_role("listitem")).to_have_text([HELLO])
            expect(bob.get_by_label("Entry")).to_have_value("Anybody here?")
            write(bob, token(tmp_path, "bob"), "Anybody here?")
            expect(cat.get_by_role("listitem")).to_have_text(["bob: Anybody here?", HELLO])
            expect(bob.get_by_role("alert")).to_have_text("")
            port = follower.server.port
            follower.server.stop()
            write(cat, token(tmp_path, "cat"), "Yes")
            expect(cat.get_by_role("listitem")).to_have_text(["you: Yes", "bob: Anybody here?", HELLO])
            follower.server.start(port)
            for page in (bob, cat):
                expect(page.get_by_role("listitem")).to_have_text(["cat: Yes", "bob: Anybody here?", HELLO])
            # Another visitor signs in the same window.
            write(bob, token(tmp_path, "dan"), "Me too")
            expect(cat.get_by_role("listitem").first).to_have_text("dan: Me too")


def token(directory: Path, user: str) -> str:
    command = [sys.executable, directory / "guestbook.py", user]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def write(page: Page, token: str, text: str) -> None:
    page.get_by_label("Your token").fill(token)
    page.get_by_label("Entry").fill(text)
    page.get_by_role("button", name="Sign").click()
