"""The store of the module, in real pages against a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from browser.conftest import UNTRUSTED
from playwright.sync_api import Page
from support import declared_rooms
from support.browser_pages import Held, Log
from support.server_process import ServerProcess, StartServer

pytestmark = pytest.mark.xdist_group("browser")

NewPage = Callable[..., Page]


def open_log(page: Page, server: ServerProcess, room: str, **options: object) -> Log:
    options = {"table": "note", "parent": room, "user": "ada", "public": True, **options}
    return Log(page, server.url, **options)


def note(text: str, **more: object) -> dict[str, object]:
    return {"payload": {"text": text}, **more}


def post(server: ServerProcess, operation: str, body: object, user: str = "somebody") -> None:
    url, headers = f"{server.url}/tables/note/{operation}", {"strandline-user": user}
    httpx.post(url, json=body, headers=headers, trust_env=False, timeout=60).raise_for_status()


def write(server: ServerProcess, room: str, *texts: str) -> None:
    post(server, "appendBulk", {"parent": room, "items": [{"payload": {"text": text}} for text in texts]})


def test_rows_are_loaded_in_pages_newest_first(page: Page, server: ServerProcess, room: str) -> None:
    write(server, room, *(f"row {number}" for number in range(1, 8)))
    log = open_log(page, server, room, pageSize=3).stands()
    assert log.texts == ["row 7", "row 6", "row 5"]
    assert log.snapshot["hasMore"] is True
    log.call("loadMore")
    assert log.texts == [f"row {number}" for number in (7, 6, 5, 4, 3, 2)]
    log.call("loadMore", 10)
    assert len(log.texts) == 7
    assert log.snapshot == {**log.snapshot, "hasMore": False, "isLoading": False, "isLive": True, "error": None}


def test_every_change_works(page: Page, server: ServerProcess, room: str) -> None:
    log = open_log(page, server, room, user="owner").stands()
    assert log.call("append", note("one")) == {"id": f"{room}:1", "seq": 1, "created": True}
    assert log.call("append", note("two", idempotencyKey="k"))["seq"] == 2
    assert log.call("append", note("again", idempotencyKey="k")) == {"id": f"{room}:2", "seq": 2, "created": False}
    bulk = log.call("appendBulk", [{"text": "three"}, {"text": "four"}])
    assert (bulk["count"], [result["seq"] for result in bulk["results"]]) == (2, [3, 4])
    log.until("log.data.length === 4 && log.data.every((row) => !row.pending)")
    assert log.texts == ["four", "three", "two", "one"]
    first = log.data[-1]
    assert {**first, "createdAt": 0, "updatedAt": 0, "idempotencyKey": ""} == {
        "text": "one", "mood": "calm", "id": f"{room}:1", "parent": room, "seq": 1, "userId": "owner", "own": True,
        "createdAt": 0, "updatedAt": 0, "idempotencyKey": "",
    }  # fmt: skip

    edited = log.call("update", first["id"], {"text": "first"}, {"expectedUpdatedAt": first["updatedAt"]})
    assert edited["text"] == "first"
    assert log.texts[-1] == "first"
    stale = log.call("update", first["id"], {"text": "late"}, {"expectedUpdatedAt": first["updatedAt"]})
    assert stale["error"]["code"] == "CONFLICT"
    assert log.texts[-1] == "first"
    assert [edit["previous"]["text"] for edit in log.call("history", first["id"])] == ["one"]

    assert log.call("rm", f"{room}:4") == {"id": f"{room}:4", "deleted": True, "soft": True}
    assert log.call("rmBulk", [f"{room}:3", f"{room}:2"])["count"] == 2
    assert log.texts == ["first"]
    assert log.call("restore", f"{room}:4")["text"] == "four"
    assert log.texts == ["four", "first"]
    assert log.call("purge") == {"deleted": 2, "soft": True}
    assert log.texts == []
    assert log.call("restore") == {"restored": 4}
    log.until("log.data.length === 4")
    assert log.call("rm", f"{room}:4", {"hard": True})["soft"] is False
    assert log.call("restore", f"{room}:4")["error"]["code"] == "NOT_FOUND"
    assert log.call("purge", {"hard": True}) == {"deleted": 3, "soft": False}
    assert log.call("restore") == {"restored": 0}
    assert log.doubles == 0


def test_every_question_is_answered(page: Page, server: ServerProcess, room: str) -> None:
    write(server, room, "a red fox", "a red hen", "a blue hen")
    log = open_log(page, server, room, live=False).until("!log.isLoading")
    assert log.call("read", f"{room}:2")["text"] == "a red hen"
    assert log.call("read", f"{room}:9") is None
    assert {row["seq"] for row in log.call("search", "red")} == {1, 2}
    assert len(log.call("search", "hen", {"limit": 1})) == 1
    assert log.call("counts", "mood") == {"counts": {"calm": 3}, "total": 3}
    assert len(log.call("indexed", "mood")["calm"]) == 3
    assert log.call("history", f"{room}:1") == []
    assert log.call("counts", "colour")["error"]["code"] == "VALIDATION_FAILED"


def test_what_one_page_does_another_sees(new_page: NewPage, server: ServerProcess, room: str) -> None:
    mine = open_log(new_page(), server, room).stands()
    other = open_log(new_page(), server, room, user="owner").stands()
    mine.call("append", note("hello"))
    other.until("log.data[0]?.text === 'hello'")
    mine.call("update", f"{room}:1", {"text": "hello there"})
    other.until("log.data[0].text === 'hello there'")
    assert other.data[0]["own"] is False
    other.call("append", note("hi"))
    mine.until("log.data[0].text === 'hi'")
    other.call("rm", f"{room}:2")
    mine.until("log.data.length === 1")
    other.call("restore", f"{room}:2")
    mine.until("log.data.length === 2")
    other.call("purge")
    mine.until("log.data.length === 0")
    other.call("restore")
    mine.until("log.data.length === 2")
    assert mine.texts == ["hi", "hello there"]
    assert (mine.doubles, other.doubles) == (0, 0)


def test_an_appended_row_is_shown_before_the_server_has_it(page: Page, server: ServerProcess, room: str) -> None:
    log = open_log(page, server, room).stands()
    held = Held(page, "**/append")
    log.begin("append", note("mine"))
    assert {**log.data[0], "createdAt": 0, "updatedAt": 0, "idempotencyKey": "", "id": ""} == {
        "text": "mine", "id": "", "parent": room, "seq": None, "userId": "ada", "own": True, "pending": True,
        "createdAt": 0, "updatedAt": 0, "idempotencyKey": "",
    }  # fmt: skip
    held.wait().release()
    assert log.ended()["seq"] == 1
    log.until("!log.data[0].pending")
    assert (log.texts, log.doubles) == (["mine"], 0)


def test_an_append_whose_answer_is_lost_is_made_once(page: Page, server: ServerProcess, room: str) -> None:
    log = open_log(page, server, room).stands()
    held = Held(page, "**/append")
    log.begin("append", note("mine"))
    held.wait().lose()
    assert log.ended()["seq"] == 1
    log.until("log.data.length === 1 && !log.data[0].pending")
    assert open_log(page, server, room).stands().texts == ["mine"]
    assert log.doubles == 0


def test_what_the_server_refuses_is_taken_back(page: Page, server: ServerProcess, room: str) -> None:
    write(server, room, "somebody's")
    log = open_log(page, server, room).stands()
    error = log.call("append", note("x" * 41))["error"]
    assert (error["code"], error["status"], error["detail"]["fields"]) == ("VALIDATION_FAILED", 400, ["text"])
    assert log.snapshot["error"]["code"] == "VALIDATION_FAILED"
    for method, arguments in {"update": [{"text": "mine now"}], "rm": []}.items():
        held = Held(page, f"**/{method}")
        log.begin(method, f"{room}:1", *arguments)
        assert log.texts == (["mine now"] if method == "update" else [])
        held.wait().release()
        assert log.ended()["error"]["code"] == "FORBIDDEN"
        assert log.texts == ["somebody's"]
    assert log.call("purge")["error"]["code"] == "FORBIDDEN"
    assert log.call("restore")["error"]["code"] == "FORBIDDEN"
    assert log.call("appendBulk", [{"text": "fine"}, {"text": "y" * 41}])["error"]["code"] == "VALIDATION_FAILED"
    assert log.texts == ["somebody's"]
    log.call("append", note("fine"))
    assert log.snapshot["error"] is None


def test_a_limit_is_told_with_how_long_it_lasts(page: Page, server: ServerProcess, room: str) -> None:
    log = open_log(page, server, room, table="scarce", user=room).stands()
    log.call("append", note("first"))
    error = log.call("append", note("second"))["error"]
    assert (error["code"], error["status"], error["detail"]["limit"]["max"]) == ("RATE_LIMITED", 429, 1)
    assert 0 < error["retryAfterMs"] <= 60_000
    log.until("log.data.length === 1 && !log.data[0].pending")


def test_a_feed_shows_all_parents(new_page: NewPage, start_server: StartServer, room: str) -> None:
    server = start_server(declare=declared_rooms.__file__)
    for number, parent in enumerate(("one", "two", "one"), 1):
        write(server, parent, f"row {number}")
    feed = Log(new_page(), server.url, "openFeed", table="note", user="owner", public=True, pageSize=2).stands()
    assert feed.texts == ["row 3", "row 2"]
    feed.call("loadMore")
    assert [row["id"] for row in feed.data] == ["one:2", "two:1", "one:1"]
    write(server, "three", "row 4")
    feed.until("log.data[0].text === 'row 4'")
    server.kill()
    feed.until("!log.isLive")
    server.start(server.port)
    post(server, "rm", {"id": "two:1"}, "owner")
    write(server, "two", "row 5")
    feed.until("log.isLive && log.data[0].text === 'row 5' && log.data.length === 4")
    post(server, "purgeByParent", {"parent": "one"}, "owner")
    feed.until("log.data.length === 2")
    assert feed.texts == ["row 5", "row 4"]
    assert feed.call("update", "three:1", {"text": "edited"})["text"] == "edited"
    assert feed.texts == ["row 5", "edited"]


def test_removed_rows_are_in_the_trash(page: Page, server: ServerProcess, room: str) -> None:
    write(server, room, "one", "two")
    log = open_log(page, server, room, user="owner").stands()
    log.call("rm", f"{room}:1")
    trash = log.call("trash", {"limit": 5})
    assert [(row["text"], row["deletedBy"]) for row in trash["page"]] == [("one", "owner")]
    assert trash["isDone"] is True
    log.call("restore", f"{room}:1")
    assert log.call("trash")["page"] == []


@pytest.mark.parametrize("is_stored", [False, True], ids=["before it is stored", "before it is answered"])
def test_an_append_outlives_the_server(
    new_page: NewPage, start_server: StartServer, room: str, is_stored: bool
) -> None:
    """The server is killed while an append is on its way, and is away for longer than other requests are repeated."""
    server = start_server(declare=declared_rooms.__file__)
    write(server, room, "one")
    retry = {"firstMs": 5, "maxMs": 20, "forMs": 0}
    log = open_log(new_page(), server, room, retry=retry).stands()
    held = Held(log.page, "**/append")
    log.begin("append", note("mine"))
    held.wait()
    if is_stored:
        held.fetch()
    server.kill()
    held.abort()
    log.until("!log.isLive")
    assert log.call("counts", "mood")["error"]["code"] == "UNREACHABLE"
    assert log.texts == ["mine", "one"]
    # What was stored may have been told before the server died.
    assert is_stored or log.data[0]["pending"] is True
    server.start(server.port)
    log.until("log.isLive && log.data.length === 2 && !log.data[0].pending")
    assert log.ended() == {"id": f"{room}:2", "seq": 2, "created": True}
    assert (log.texts, log.doubles, log.snapshot["error"]) == (["mine", "one"], 0, None)
    assert open_log(new_page(), server, room).stands().texts == ["mine", "one"]


def test_a_connection_reconnects_with_the_current_token(
    new_page: NewPage, start_server: StartServer, room: str
) -> None:
    server = start_server(declare=declared_rooms.__file__, keys="old:rw")
    page = new_page()
    page.evaluate("() => { window.token = 'old' }")
    page.evaluate(
        """([url, parent]) => {
            const connection = { token: async () => token, retry: { firstMs: 5, maxMs: 20 } };
            window.log = openLog(url, { connection, table: "note", parent });
        }""",
        [server.url, room],
    )
    page.wait_for_function("log.isLive && !log.isLoading")
    server.stop()
    page.wait_for_function("!log.isLive")
    page.evaluate("() => { token = 'new' }")
    server.keys = "new:rw"
    server.start(server.port)
    page.wait_for_function("log.isLive")
    assert page.evaluate("() => log.append({ payload: { text: 'still there' } })")["created"] is True
    assert page.evaluate("() => log.error") is None


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_nothing_is_lost_or_doubled_when_the_server_comes_back(
    new_page: NewPage, start_server: StartServer, room: str, how: str
) -> None:
    server = start_server(declare=declared_rooms.__file__)
    write(server, room, "one", "two", "three")
    log = open_log(new_page(), server, room, user="owner").stands()
    getattr(server, how)()
    log.until("!log.isLive")
    # What is done meanwhile waits; what others do is told afterwards.
    log.begin("append", note("meanwhile"))
    assert log.texts == ["meanwhile", "three", "two", "one"]
    held = Held(log.page, "**/live?*")
    server.start(server.port)
    write(server, room, "from elsewhere")
    body = {"id": f"{room}:1"}
    headers = {"strandline-user": "owner"}
    httpx.post(
        f"{server.url}/tables/note/rm", json=body, headers=headers, trust_env=False, timeout=60
    ).raise_for_status()
    held.wait().release()
    log.until("log.isLive && log.data.length === 4 && log.data.every((row) => !row.pending)")
    assert log.ended()["created"] is True
    assert sorted(log.texts) == ["from elsewhere", "meanwhile", "three", "two"]
    assert [row["seq"] for row in log.data] == [5, 4, 3, 2]
    assert open_log(new_page(), server, room).stands().data == [{**row, "own": False} for row in log.data]
    assert (log.doubles, log.snapshot["error"]) == (0, None)


def test_everything_is_loaded_anew_when_the_server_has_another_past(
    new_page: NewPage, start_server: StartServer, tmp_path: Path, room: str
) -> None:
    server = start_server(declare=declared_rooms.__file__, data=tmp_path / "one")
    write(server, room, "one", "two", "three")
    log = open_log(new_page(), server, room).stands()
    server.kill()
    log.until("!log.isLive")
    other = start_server(declare=declared_rooms.__file__, data=tmp_path / "other")
    other.stop()
    other.start(server.port)
    write(other, room, "another")
    log.until("log.isLive && log.data.length === 1")
    assert log.texts == ["another"]


def test_keys_are_sent_with_everything(new_page: NewPage, start_server: StartServer, room: str) -> None:
    server = start_server(declare=declared_rooms.__file__, keys="the-secret:rw")
    page = new_page()
    stranger = open_log(page, server, room, public=False, user=None).until("!log.isLoading")
    assert stranger.snapshot["error"]["code"] == "NOT_AUTHENTICATED"
    log = open_log(page, server, room, token="the-secret", public=False, user=None).stands()
    log.call("append", note("with a key"))
    log.until("log.data.length === 1 && !log.data[0].pending")
    assert log.data[0]["own"] is True


def test_pages_that_browsers_do_not_trust_have_keys_as_well(
    new_page: NewPage, server: ServerProcess, site: str, room: str
) -> None:
    page = new_page(site.replace("127.0.0.1", UNTRUSTED))
    assert page.evaluate("window.isSecureContext") is False
    assert page.evaluate("typeof crypto.randomUUID") == "undefined"
    log = open_log(page, server, room).stands()
    log.call("append", note("one"))
    log.call("append", note("two"))
    log.until("log.data.length === 2 && log.data.every((row) => !row.pending)")
    keys = {row["idempotencyKey"] for row in log.data}
    assert len(keys) == 2
    assert all(len(key) == 32 for key in keys)


def test_a_closed_log_leaves_no_connection_behind(page: Page, server: ServerProcess, room: str) -> None:
    log = open_log(page, server, room).stands()
    with page.expect_event("requestfailed", lambda request: "/live?" in request.url):
        log.close()
    assert log.call("append", note("late"))["error"]["code"] == "CLOSED"
