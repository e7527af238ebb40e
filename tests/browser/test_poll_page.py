"""The poll demo as people use it: several windows, light and dark, large and small, by mouse and by keyboard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser.conftest import HERE
from playwright.sync_api import Page, expect
from support.browser_pages import ROOT, Held
from support.server_process import STOP_SECONDS, ServerProcess, StartServer

pytestmark = pytest.mark.xdist_group("browser")

POLL = ROOT / "examples" / "poll"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LOOKS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
    "phone": PHONE,
    "dark phone": {**PHONE, "color_scheme": "dark"},
}

Visit = Callable[..., Page]


@pytest.fixture(scope="session")
def page_address() -> Iterator[str]:
    """The page alone, as the demo serves it."""
    sys.path.insert(0, str(POLL))
    try:
        from serve import page_server
    finally:
        sys.path.remove(str(POLL))
    with page_server() as address:
        yield address


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("polls") / "data", settings={"declare": POLL / "polls.py"})
    try:
        yield process.start()
    finally:
        process.end()


class Site:
    """The polls of one test, as a server has them. People of the same name are others on another site, so that they do
    not share their limits."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        self.server = server
        self.name = name

    def who(self, user: str) -> str:
        return f"{user} of {self.name}"

    def ask(self, question: str, *options: str, user: str = "ada", **more: object) -> str:
        payload = {"question": question, "options": options, **more}
        poll: str = self.post("poll/append", {"parent": self.name, "payload": payload}, user)["id"]
        return poll

    def vote(self, poll: str, option: int, *users: str, times: int = 1) -> None:
        for user in users:
            items = [{"optionIdx": option}] * times
            self.post("vote/appendBulk", {"parent": poll, "items": items}, user)

    def post(self, path: str, body: object, user: str) -> Any:
        url, headers = f"{self.server.url}/tables/{path}", {"strandline-user": self.who(user)}
        answer = httpx.post(url, json=body, headers=headers, trust_env=False, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()


numbers = count(1)


@pytest.fixture
def site(shared_server: ServerProcess) -> Site:
    return Site(shared_server, f"site-{next(numbers)}")


@pytest.fixture
def visit(new_context_page: Callable[..., Page], page_address: str, site: Site) -> Visit:
    """Open the page as somebody."""

    def visit(user: str, poll: str = "", **look: Any) -> Page:
        page = new_context_page("about:blank", **look)
        name = site.who(user)
        page.add_init_script(f"localStorage.setItem('who', localStorage.getItem('who') ?? {name!r})")
        page.goto(f"{page_address}/?server={site.server.url}&site={site.name}#{poll}")
        expect(page.locator("#state")).to_have_text("Live")
        return page

    return visit


def option(page: Page, text: str) -> Any:
    return page.locator("#options").get_by_role("button", name=text)


def check_accessible(page: Page) -> None:
    page.add_script_tag(path=str(HERE / "node_modules" / "axe-core" / "axe.min.js"))
    found = page.evaluate("async () => (await axe.run()).violations")
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


@pytest.mark.parametrize("look", LOOKS)
def test_the_page_works_at_every_size_and_in_every_light(visit: Visit, site: Site, packages: None, look: str) -> None:
    page = visit("ada", **LOOKS[look])
    expect(page.get_by_role("heading", name="No polls yet")).to_be_visible()
    check_accessible(page)
    page.get_by_role("button", name="New poll").click()
    page.get_by_label("Question").fill("What shall we eat?")
    for number, answer in enumerate(["Soup", "Salad", "Whatever there is, as long as there is enough of it"], 1):
        page.get_by_label(f"Answer {number}").fill(answer)
    check_accessible(page)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="What shall we eat?")).to_be_visible()
    expect(page.locator("#no-votes")).to_have_text("No votes yet.")
    option(page, "Soup").click()
    expect(page.locator("#mine")).to_have_text("You voted for “Soup”.")
    site.vote(f"{site.name}:1", 1, "bob", "chloe", "dora")
    expect(option(page, "Soup")).to_contain_text("25 %")
    expect(option(page, "Salad")).to_contain_text("3 votes")
    expect(page.locator("#votes li")).to_have_count(4)
    check_accessible(page)
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], "nothing sticks out at the side"


def test_votes_move_the_bars_in_all_windows(visit: Visit, site: Site) -> None:
    site.ask("Tea or coffee?", "Tea", "Coffee")
    ada, bob = visit("ada"), visit("Bob Ünal")
    option(ada, "Tea").click()
    expect(option(bob, "Tea")).to_contain_text("100 %")
    option(bob, "Coffee").click()
    for page in (ada, bob):
        expect(option(page, "Tea")).to_contain_text("50 %")
        expect(page.locator("#votes .name")).to_have_text([site.who("Bob Ünal"), site.who("ada")])
        expect(page.locator("#about")).to_contain_text("2 votes")
    share = "getComputedStyle(document.querySelector('.bar')).transform"
    ada.wait_for_function(f"{share} === 'matrix(0.5, 0, 0, 1, 0, 0)'")


def test_one_changes_ones_vote_instead_of_voting_twice(visit: Visit, site: Site) -> None:
    site.ask("Tea or coffee?", "Tea", "Coffee", "Water")
    mine, again, other = visit("bob"), visit("bob"), visit("ada")
    option(mine, "Tea").click()
    expect(option(again, "Tea")).to_have_attribute("aria-pressed", "true")
    option(again, "Coffee").click()
    for page in (mine, again, other):
        expect(page.locator("#votes li")).to_have_count(1)
        expect(page.locator("#votes .chosen")).to_contain_text("Coffee edited")
        expect(option(page, "Coffee")).to_contain_text("100 %")
    option(mine, "Water").click()
    expect(other.locator("#votes .chosen")).to_contain_text("Water edited")
    other.get_by_role("button", name="edited").click()
    expect(other.locator("#votes .chosen")).to_contain_text("before: Tea, then Coffee")
    mine.get_by_role("button", name="Withdraw vote").click()
    expect(other.locator("#votes li")).to_have_count(0)
    # The vote that was withdrawn comes back, changed; nobody gets a second one.
    option(mine, "Tea").click()
    expect(mine.locator("#mine")).to_have_text("You voted for “Tea”.")
    expect(other.locator("#votes .chosen")).to_contain_text("Tea")
    mine.get_by_role("button", name="Withdraw vote").click()
    mine.get_by_role("button", name="Undo").click()
    expect(other.locator("#votes li")).to_have_count(1)


def test_a_vote_is_shown_before_the_server_has_it(visit: Visit, site: Site) -> None:
    site.ask("Tea or coffee?", "Tea", "Coffee")
    page = visit("bob")
    held = Held(page, "**/vote/append")
    option(page, "Tea").click()
    expect(page.locator("#mine")).to_have_text("Sending your vote…")
    expect(option(page, "Tea")).to_contain_text("100 %")
    held.wait().release()
    expect(page.locator("#mine")).to_have_text("You voted for “Tea”.")


def test_the_owner_clears_all_votes_and_brings_them_back(visit: Visit, site: Site) -> None:
    poll = site.ask("Tea or coffee?", "Tea", "Coffee")
    site.vote(poll, 1, "bob", "chloe")
    owner, other = visit("ada"), visit("bob")
    expect(other.get_by_role("button", name="Clear all votes")).to_be_hidden()
    owner.get_by_role("button", name="Clear all votes").click()
    expect(owner.locator("#notice")).to_contain_text("2 votes cleared.")
    expect(other.locator("#no-votes")).to_have_text("No votes yet.")
    owner.get_by_role("button", name="Undo").click()
    expect(owner.locator("#notice")).to_contain_text("2 votes restored.")
    expect(option(other, "Coffee")).to_contain_text("2 votes")
    owner.get_by_role("button", name="Clear all votes").click()
    expect(other.locator("#votes li")).to_have_count(0)
    owner.get_by_role("button", name="Restore cleared votes").click()
    expect(other.locator("#votes li")).to_have_count(2)
    owner.get_by_role("button", name="Restore cleared votes").click()
    expect(owner.locator("#notice")).to_contain_text("There were no votes to restore.")


def test_a_poll_with_more_votes_than_are_loaded_is_counted_all_the_same(visit: Visit, site: Site) -> None:
    poll = site.ask("Tea or coffee?", "Tea", "Coffee")
    site.vote(poll, 0, "bob", "chloe", "dora", times=20)
    site.vote(poll, 1, "eve")
    page = visit("bob")
    expect(option(page, "Tea")).to_contain_text("60 votes")
    expect(page.locator("#about")).to_contain_text("61 votes")
    site.vote(poll, 1, "fred")
    expect(option(page, "Coffee")).to_contain_text("2 votes")
    expect(page.locator("#votes li")).to_have_count(8)
    for _ in range(7):
        page.get_by_role("button", name="Show more").click()
    expect(page.locator("#votes li")).to_have_count(62)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()


def test_everything_can_be_done_with_the_keyboard(visit: Visit, site: Site) -> None:
    page = visit("ada")
    page.locator("#who").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.type("Tea or coffee?")
    page.keyboard.press("Tab")
    page.keyboard.type("Tea")
    page.keyboard.press("Tab")
    page.keyboard.type("Coffee")
    page.keyboard.press("Enter")
    option(page, "Coffee").focus()
    page.keyboard.press("Space")
    expect(page.locator("#mine")).to_have_text("You voted for “Coffee”.")
    expect(option(page, "Coffee")).to_be_focused()
    page.get_by_role("button", name="New poll").click()
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()


def test_the_form_says_what_is_missing(visit: Visit) -> None:
    page = visit("ada")
    page.get_by_role("button", name="New poll").click()
    page.get_by_label("Question").fill("Tea or tea?")
    page.get_by_label("Answer 1").fill("Tea")
    page.get_by_label("Answer 2").fill("Tea")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#problem")).to_have_text("Each answer must be different.")
    page.get_by_label("Answer 2").fill(" ")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#problem")).to_have_text("Enter a question and at least two answers.")


def test_a_private_poll_is_for_its_owner(visit: Visit, site: Site, packages: None) -> None:
    site.ask("Who gets the prize?", "Bob", "Chloe", isPublic=False)
    owner, other = visit("ada"), visit("chloe")
    option(owner, "Bob").click()
    expect(owner.locator("#votes li")).to_have_count(1)
    expect(other.locator("#mine")).to_have_text("This poll is private: only its owner can vote and see the votes.")
    expect(option(other, "Bob")).to_be_disabled()
    expect(other.locator("#votes li")).to_have_count(0)
    check_accessible(other)


def test_another_name_is_another_voter(visit: Visit, site: Site) -> None:
    site.ask("Tea or coffee?", "Tea", "Coffee")
    page = visit("bob")
    option(page, "Tea").click()
    expect(page.locator("#mine")).to_have_text("You voted for “Tea”.")
    page.get_by_label("Voting as").fill(site.who("ada"))
    page.get_by_label("Voting as").press("Enter")
    expect(page.locator("#mine")).to_have_text("Choose an answer; you can change it later.")
    expect(page.get_by_role("button", name="Clear all votes")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Voting as")).to_have_value(site.who("ada"))


def test_a_poll_stays_where_it_is_when_a_newer_one_comes(visit: Visit, site: Site) -> None:
    first = site.ask("Tea or coffee?", "Tea", "Coffee")
    page = visit("bob")
    expect(page.locator("#question")).to_have_text("Tea or coffee?")
    for number in range(30):
        site.ask(f"Question {number}", "Yes", "No", user=f"user {number}")
    expect(page.get_by_role("link", name="Question 29")).to_be_visible()
    expect(page.locator("#question")).to_have_text("Tea or coffee?")
    page.get_by_role("link", name="Question 29").click()
    expect(page.locator("#question")).to_have_text("Question 29")
    # The address of a poll is good for sending, however old the poll is.
    other = visit("chloe", first)
    expect(other.locator("#question")).to_have_text("Tea or coffee?")


@pytest.fixture
def own_site(start_server: StartServer) -> Site:
    """A site whose server the test may stop."""
    return Site(start_server(declare=POLL / "polls.py"), "main")


class TestAnInterruption:
    @pytest.fixture
    def site(self, own_site: Site) -> Site:
        return own_site

    def test_the_page_says_when_the_server_is_gone_and_goes_on_when_it_is_back(self, visit: Visit, site: Site) -> None:
        site.ask("Tea or coffee?", "Tea", "Coffee")
        page = visit("bob")
        expect(page.locator("#question")).to_be_visible()
        site.server.kill()
        expect(page.locator("#state")).to_have_text("Disconnected, reconnecting…")
        option(page, "Tea").click()
        expect(page.locator("#mine")).to_have_text("Sending your vote…")
        site.server.start(site.server.port)
        expect(page.locator("#state")).to_have_text("Live")
        expect(page.locator("#mine")).to_have_text("You voted for “Tea”.")
        expect(page.locator("#votes li")).to_have_count(1)

    def test_the_commands_of_the_readme_work(self, site: Site) -> None:
        blocks = (POLL / "README.md").read_text().split("```sh\n")[1:]
        (commands,) = [block.partition("```")[0] for block in blocks if "curl" in block]
        told = [run(command, site.server.url) for command in commands.replace("\\\n", " ").strip().splitlines()]
        assert told[0] == '{"seq":1,"created":true,"id":"main:1"}'
        assert told[1] == '{"seq":1,"created":true,"id":"main:1:1"}'
        assert told[2] == '{"counts":{"1":1},"total":1}'
        assert 'event: append\ndata: {"optionIdx":1,"voter":"bob",' in told[3]


def test_the_page_says_so_when_there_is_no_server(
    new_context_page: Callable[..., Page], page_address: str, packages: None
) -> None:
    # Nothing listens on the port for discarding.
    page = new_context_page(f"{page_address}/?server=http://127.0.0.1:9")
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_visible()
    check_accessible(page)


def test_the_page_begins_when_the_server_is_there(
    new_context_page: Callable[..., Page], page_address: str, own_site: Site
) -> None:
    server = own_site.server
    own_site.ask("Tea or coffee?", "Tea", "Coffee")
    server.stop()
    page = new_context_page(f"{page_address}/?server={server.url}")
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_visible()
    server.start(server.port)
    expect(page.get_by_role("heading", name="Tea or coffee?")).to_be_visible()


def test_what_the_server_refuses_is_said(visit: Visit, site: Site) -> None:
    poll = site.ask("Tea or coffee?", "Tea", "Coffee")
    site.vote(poll, 0, "bob", times=30)
    site.post("vote/purgeByParent", {"parent": poll}, "ada")
    page = visit("bob")
    option(page, "Tea").click()
    expect(page.locator("#notice")).to_contain_text("Too many votes. Try again in")
    expect(page.locator("#votes li")).to_have_count(0)
    page.get_by_role("button", name="Close this message").click()
    expect(page.locator("#notice")).to_be_hidden()


def test_the_script_serves_both_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(POLL / "serve.py"),
        "--data",
        str(tmp_path / "data"),
        "--port",
        "0",
        "--page-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as script:
        assert script.stdout is not None
        try:
            addresses = dict(script.stdout.readline().split() for _ in range(2))
            assert httpx.get(addresses["page"], trust_env=False, timeout=60).text.startswith("<!doctype html>")
            assert httpx.get(f"{addresses['server']}/js/strandline.js", trust_env=False).is_success
            for outside in ("/../polls.py", "/%2e%2e/polls.py", "/page/../../../pyproject.toml"):
                assert httpx.get(addresses["page"].partition("?")[0] + outside, trust_env=False).status_code == 404
            listed = httpx.get(f"{addresses['server']}/tables/poll/pub/list?parent=main", trust_env=False, timeout=60)
            assert listed.json()["page"] == []
        finally:
            script.send_signal(signal.SIGTERM)
            script.wait(STOP_SECONDS)
    with pytest.raises(httpx.ConnectError):
        httpx.get(addresses["server"], trust_env=False)


def run(command: str, url: str) -> str:
    """What it prints; a live connection until it has caught up."""
    here = "exec " + command.replace("localhost:4000", url.removeprefix("http://"))
    environment = {**os.environ, "no_proxy": "*"}
    with subprocess.Popen(["bash", "-c", here], stdout=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdout is not None
        told = []
        for line in program.stdout:
            told.append(line)
            if line == "event: ready\n":
                program.kill()
        return "".join(told)
