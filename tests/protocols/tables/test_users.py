"""Who asks: without keys, with keys, for others, and by what the declarations say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.server_process import ServerProcess, StartServer
from support.tables_client import POLLS, Bed, TablesClient

from strandline.protocols.tables.errors import Errors
from strandline.protocols.tables.users import Users
from strandline.service.access import Keys
from strandline.service.http import Call, Head, Reply
from strandline.service.problems import Throttled
from strandline.tables import TableError

KEYS = "boss,writer:rw,reader:read,remover:read+write+delete,desk-a:read+write+delete:note/a"


def id_of(secret: str) -> str:
    return next(
        access.id for access, entry in zip(Keys.parse(KEYS).accesses(), KEYS.split(","), strict=True)
        if entry.split(":")[0] == secret
    )  # fmt: skip


@pytest.fixture(scope="module")
def guarded(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp(f"guarded-{lane}") / "data"
    process = ServerProcess(data, fast_lane=lane == "fast", keys=KEYS, settings={"declare": POLLS})
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def keyed(guarded: ServerProcess) -> Iterator[Bed]:
    bed = Bed(guarded)
    yield bed
    bed.close()


def author(client: TablesClient, table: str, id: str, variant: str = "auth") -> Any:
    return client.read(table, "read", variant=variant, id=id)["userId"]


# --- without keys --------------------------------------------------------------------------------------------------


def test_without_keys_a_header_says_who_it_is(bed: Bed, parent: str) -> None:
    bob, nobody = bed.user("bob"), bed.user()
    assert author(bob, "note", bob.append("note", parent)["id"]) == "bob"
    assert author(nobody, "note", nobody.append("note", parent)["id"]) == "anonymous"


def test_a_user_may_have_any_printable_name(bed: Bed, parent: str) -> None:
    client = bed.user()
    headers = {"strandline-user": "Jürgen Ω".encode()}
    answer = client.call("POST", "/tables/note/append", {"parent": parent, "payload": {}}, headers=headers)
    row = client.call("GET", "/tables/note/auth/read", params={"id": answer["id"]}, headers=headers)
    assert row["userId"] == "Jürgen Ω"
    for name in (b"", b"x" * 257, b"a\tb"):
        error = client.refusal(
            "POST",
            "/tables/note/append",
            {"parent": parent, "payload": {}},
            headers={"strandline-user": name},
            status=400,
        )
        assert error["code"] == "VALIDATION_FAILED"


# --- with keys -----------------------------------------------------------------------------------------------------


def test_without_a_valid_key_nothing_but_public_reads_is_answered(keyed: Bed, parent: str) -> None:
    keyed.user(key="writer").append("poll", parent, {"title": "Lunch?"})
    for stranger in (keyed.user(), keyed.user(key="wrong"), keyed.user("ann")):
        error = stranger.refused_write("poll", "append", parent=parent, payload={"title": "x"}, status=401)
        assert error["code"] == "NOT_AUTHENTICATED"
        assert stranger.refused_read("poll", "list", parent=parent, status=401)["code"] == "NOT_AUTHENTICATED"
        assert stranger.refused_read("poll", "live", parent=parent, status=401)["code"] == "NOT_AUTHENTICATED"
        (row,) = stranger.read("poll", "list", variant="pub", parent=parent)["page"]
        assert row["title"] == "Lunch?"
        assert "own" not in row


def test_a_key_is_a_user(keyed: Bed, parent: str) -> None:
    writer = keyed.user(key="writer")
    id = writer.append("note", parent)["id"]
    assert author(writer, "note", id) == id_of("writer")
    assert keyed.user(key="reader").read("note", "read", id=id) is None


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("reader", {"read"}), ("writer", {"read", "write"}), ("remover", {"read", "write", "delete"})],
)
def test_keys_do_what_their_scopes_allow(keyed: Bed, parent: str, key: str, allowed: set[str]) -> None:
    client = keyed.user(key=key)
    for scope, path, body in (
        ("write", "append", {"parent": parent, "payload": {"optionIdx": 1}}),
        ("write", "appendBulk", {"parent": parent, "items": []}),
        ("write", "update", {"id": f"{parent}:1", "patch": {"a": 1}}),
        ("delete", "rm", {"id": f"{parent}:1"}),
        ("delete", "rmBulk", {"ids": [f"{parent}:1"]}),
        ("delete", "purgeByParent", {"parent": parent}),
        ("delete", "restoreByParent", {"parent": parent}),
        ("delete", "restore", {"id": f"{parent}:1"}),
    ):
        error = client.request("POST", f"/tables/vote/{path}", body).json().get("error", {})
        assert (error.get("message") == f"the API key lacks the {scope} scope") == (scope not in allowed), path
    assert client.read("note", "list", parent=parent)["page"] == []


def test_a_key_touches_no_other_names_than_it_may(keyed: Bed) -> None:
    client = keyed.user(key="desk-a")
    id = client.append("note", "a-1")["id"]
    assert client.read("note", "read", id=id)["id"] == id
    for op, body in (
        ("append", {"parent": "b", "payload": {}}),
        ("rm", {"id": "b:1"}),
        ("rmBulk", {"ids": [id, "b:1"]}),
        ("purgeByParent", {"parent": "b"}),
    ):
        assert client.refused_write("note", op, **body, status=403)["code"] == "FORBIDDEN"
    assert client.refused_read("note", "list", parent="b", status=403)["code"] == "FORBIDDEN"
    assert client.refused_read("note", "live", parent="b", status=403)["code"] == "FORBIDDEN"


def test_a_key_with_the_admin_scope_acts_for_others(keyed: Bed, parent: str) -> None:
    bob = keyed.user("bob", key="boss")
    id = bob.append("note", parent)["id"]
    assert author(bob, "note", id) == "bob"
    assert keyed.user("eve", key="boss").read("note", "read", id=id) is None
    error = keyed.user("eve", key="boss").refused_write("note", "rm", id=id, status=403)
    assert error["code"] == "FORBIDDEN"
    error = keyed.user("bob", key="remover").refused_write("note", "rm", id=id, status=403)
    assert error["message"] == "only an API key with the admin scope may act for another user"


def test_a_key_with_the_admin_scope_that_acts_for_nobody_may_do_everything(keyed: Bed, parent: str) -> None:
    boss, writer, remover = keyed.user(key="boss"), keyed.user(key="writer"), keyed.user(key="remover")
    ids = [writer.append("note", parent)["id"] for _ in range(3)]
    assert [row["id"] for row in boss.read("note", "list", parent=parent)["page"]] == ids[::-1]
    assert boss.write("note", "update", id=ids[0], patch={"a": 1})["userId"] == id_of("writer")
    assert boss.write("note", "rm", id=ids[0])["deleted"]
    # The rows of a parent that nobody owns are the program's to sweep.
    assert remover.refused_write("note", "purgeByParent", parent=parent, status=403)["code"] == "FORBIDDEN"
    assert boss.write("note", "purgeByParent", parent=parent) == {"deleted": 2, "soft": False}
    # What it appends is its own.
    assert author(boss, "note", boss.append("note", parent)["id"]) == id_of("boss")


def test_an_event_stream_may_say_who_it_is_in_its_address(keyed: Bed, bed: Bed, parent: str) -> None:
    boss = keyed.user(key="boss")
    keyed.user("bob", key="boss").append("note", parent, {"a": 1})
    stranger = keyed.user()
    path = f"/tables/note/auth/live?parent={parent}"
    with stranger.events(f"{path}&token=boss&user=bob") as events:
        assert events.next().json["own"] is True
    with stranger.events(f"{path}&token=boss&user=eve") as events:
        assert events.next().event == "ready"
    with boss.events(path) as events:
        assert events.next().event == "append"
    bed.user("bob").append("note", parent, {"a": 1})
    with bed.user().events(f"{path}&user=bob") as events:
        assert events.next().json["own"] is True
    # Elsewhere nothing in an address counts.
    error = stranger.refusal("GET", f"/tables/note/auth/list?parent={parent}&token=boss", status=400)
    assert error["message"].startswith("unknown parameter 'token'; expected parent")


def test_a_preflight_is_answered_without_a_key(keyed: Bed) -> None:
    response = keyed.user().request(
        "OPTIONS",
        "/tables/note/append",
        headers={"origin": "http://localhost:5173", "access-control-request-method": "POST"},
    )
    assert response.status_code == 204
    allowed = response.headers["access-control-allow-headers"].lower()
    for header in ("content-type", "authorization", "strandline-user", "last-event-id"):
        assert header in allowed
    assert "POST" in response.headers["access-control-allow-methods"]


# --- by what the declarations say ----------------------------------------------------------------------------------

DECLARATIONS = """
from strandline.tables import make_log

note = make_log("note", parent="desk", schema={"type": "object"}, pub=True)


def identify(headers):
    cookie = headers.get("cookie", "")
    if cookie == "session=broken":
        raise RuntimeError("the sessions cannot be looked up")
    if headers.get("authorization") == "Bearer ticket":
        return "ticket holder"
    return cookie.removeprefix("session=") if cookie.startswith("session=") else None
"""


def test_identify_decides_who_it_is(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "declared.py").write_text(DECLARATIONS)
    server = start_server(declare=tmp_path / "declared.py")
    bed = Bed(server)
    body = {"parent": "d", "payload": {}}
    carl = bed.user()
    id = carl.call("POST", "/tables/note/append", body, headers={"cookie": "session=carl"})["id"]
    assert carl.read("note", "read", variant="pub", id=id)["userId"] == "carl"
    # Anybody could say anything in a header.
    for client in (carl, bed.user("carl")):
        assert client.refusal("POST", "/tables/note/append", body, status=401)["code"] == "NOT_AUTHENTICATED"
        assert "own" not in client.read("note", "read", variant="pub", id=id)
    error = carl.refusal("POST", "/tables/note/append", body, headers={"cookie": "session=broken"}, status=500)
    assert error["code"] == "INTERNAL"
    assert "the sessions cannot be looked up" in server.log()
    id = carl.call("POST", "/tables/note/append", body, headers={"authorization": "Bearer ticket"})["id"]
    assert carl.read("note", "read", variant="pub", id=id)["userId"] == "ticket holder"
    with carl.events("/tables/note/auth/live?parent=d&token=ticket") as events:
        assert events.next().json["userId"] == "ticket holder"
    bed.close()


def test_whom_identify_knows_needs_no_key_and_others_do(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "declared.py").write_text(DECLARATIONS)
    bed = Bed(start_server(keys="boss,reader:read", declare=tmp_path / "declared.py"))
    body = {"parent": "d", "payload": {}}
    carl = bed.user()
    assert carl.call("POST", "/tables/note/append", body, headers={"cookie": "session=carl"})["created"]
    assert carl.refusal("POST", "/tables/note/append", body, status=401)["code"] == "NOT_AUTHENTICATED"
    assert bed.user("bob", key="boss").append("note", "d")["created"]
    assert bed.user(key="reader").refused_write("note", "append", **body, status=403)["code"] == "FORBIDDEN"
    bed.close()


# --- identify as a coroutine, and roles ----------------------------------------------------------------------------

MODERATED = """
import asyncio

from strandline.tables import TableError, User, make_log

note = make_log("note", parent="desk", schema={"type": "object"}, soft_delete=True, moderators=("moderator", "boss"))
page = make_log("page", parent=note, schema={"type": "object"}, moderators=("moderator",))


async def identify(headers):
    name, _, roles = headers.get("authorization", "").removeprefix("Bearer ").partition("+")
    await asyncio.sleep(0)
    if name == "expired":
        raise TableError("NOT_AUTHENTICATED", "the session has expired")
    if name == "wrong":
        return 7
    return User(name, roles=roles.split("+")) if roles else name or None
"""


@pytest.fixture
def moderated(start_server: StartServer, tmp_path: Path) -> Iterator[Bed]:
    (tmp_path / "declared.py").write_text(MODERATED)
    bed = Bed(start_server(declare=tmp_path / "declared.py"))
    yield bed
    bed.close()


def test_identify_may_be_a_coroutine_function(moderated: Bed) -> None:
    ann = moderated.user(key="ann")
    id = ann.append("note", "d")["id"]
    assert author(ann, "note", id) == "ann"
    body = {"parent": "d", "payload": {}}
    error = moderated.user("ann").refusal("POST", "/tables/note/append", body, status=401)
    assert error["code"] == "NOT_AUTHENTICATED"
    error = moderated.user(key="expired").refused_write("note", "append", **body, status=401)
    assert (error["code"], error["message"]) == ("NOT_AUTHENTICATED", "the session has expired")
    assert moderated.user(key="wrong").refused_write("note", "append", **body, status=500)["code"] == "INTERNAL"
    assert "identify returned 7; expected the id of a user, a User or None" in moderated.server.log()
    with moderated.user().events("/tables/note/auth/live?parent=d&token=ann") as events:
        assert events.next().json["own"] is True


def test_a_moderator_acts_as_the_owner_of_every_parent(moderated: Bed) -> None:
    ann, eve = moderated.user(key="ann"), moderated.user(key="eve+reader")
    mod, boss = moderated.user(key="mod+reader+moderator"), moderated.user(key="boss+boss")
    ids = [ann.append("note", "d", {"n": n})["id"] for n in range(3)]
    for other in (eve, moderated.user(key="eve")):
        assert other.read("note", "list", parent="d")["page"] == []
        error = other.refused_write("note", "rm", id=ids[0], status=403)
        who = "only its author and users with the role boss or moderator"
        assert error["message"] == f"{who} may change row d:1 of note"
        assert other.refused_write("note", "purgeByParent", parent="d", status=403)["code"] == "FORBIDDEN"
    for moderator in (mod, boss):
        assert len(moderator.read("note", "list", parent="d")["page"]) == 3
        assert moderator.read("note", "counts", parent="d", by="n")["total"] == 3
        assert moderator.write("note", "rm", id=ids[0])["deleted"]
        assert moderator.write("note", "restore", id=ids[0])["userId"] == "ann"
        assert moderator.write("note", "update", id=ids[1], patch={"n": 7})["n"] == 7
        assert moderator.write("note", "purgeByParent", parent="d") == {"deleted": 3, "soft": True}
        assert moderator.write("note", "restoreByParent", parent="d") == {"restored": 3}
    with mod.events("/tables/note/auth/live?parent=d") as events:
        assert events.next().json["userId"] == "ann"


def test_a_role_counts_only_for_the_tables_that_name_it(moderated: Bed) -> None:
    ann = moderated.user(key="ann")
    note = ann.append("note", "d")["id"]
    page = moderated.user(key="bob").append("page", note)["id"]
    assert moderated.user(key="boss+boss").refused_write("page", "rm", id=page, status=403)["code"] == "FORBIDDEN"
    assert moderated.user(key="mod+moderator").write("page", "rm", id=page)["deleted"]


def call_of(token: str = "") -> Call:
    head = Head("GET", "/", "", {b"authorization": token.encode()})
    return Call(head, b"", 0.0)


def test_an_identify_that_takes_too_long_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def never(headers: Mapping[str, str]) -> str | None:
        await asyncio.Event().wait()
        return None

    users = Users(False, never, seconds=0.0)

    async def ask() -> None:
        answer = users.identified(lambda call: Reply(b""))(call_of())
        assert isinstance(answer, Awaitable)
        await answer

    for _ in range(3):
        with pytest.raises(TableError, match="not identified within 0 s") as error:
            asyncio.run(ask())
    assert caplog.messages == ["refused 1 requests: identify did not return within 0 s"]
    reply = Errors("note", "list").reply_to(error.value)
    assert reply is not None
    assert reply.status == 503
    assert dict(reply.headers)[b"retry-after"]


async def cancelled_later(headers: Mapping[str, str]) -> str | None:
    raise asyncio.CancelledError


def cancelled_now(headers: Mapping[str, str]) -> str | None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("identify", [cancelled_later, cancelled_now])
def test_an_identify_that_raises_cancelled_error_has_failed(identify: Any) -> None:
    async def ask() -> None:
        answer = Users(False, identify).identified(lambda call: Reply(b""))(call_of())
        assert isinstance(answer, Awaitable)
        await answer

    with pytest.raises(RuntimeError, match="identify raised CancelledError"):
        asyncio.run(ask())


def test_a_cancelled_request_is_not_a_failure_of_identify() -> None:
    async def wait(headers: Mapping[str, str]) -> str | None:
        await asyncio.Event().wait()
        return None

    async def ask() -> None:
        answer = Users(False, wait).identified(lambda call: Reply(b""))(call_of())
        assert isinstance(answer, Awaitable)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())


def test_only_so_many_requests_wait_for_identify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.protocols.tables.users.MAX_IDENTIFYING", 2)
    known = asyncio.Event()

    async def wait(headers: Mapping[str, str]) -> str | None:
        await known.wait()
        return headers["authorization"]

    async def ask(users: Users, name: str) -> str:
        handle = users.identified(lambda call: Reply(users.known(call, None).id.encode()))
        answer = handle(call_of(name))
        assert isinstance(answer, Awaitable)
        reply = await answer
        assert isinstance(reply, Reply)
        return reply.body.decode()

    async def crowd() -> list[str | BaseException]:
        users = Users(False, wait)
        first = [asyncio.ensure_future(ask(users, name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        with pytest.raises(Throttled):
            await ask(users, "c")
        known.set()
        return [*await asyncio.gather(*first), await ask(users, "d")]

    assert asyncio.run(crowd()) == ["a", "b", "d"]
