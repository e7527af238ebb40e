"""Tables: what is declared, the parents, the rows of a parent, its trash and the edits of a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from support.console_in_process import ConsoleStand

from strandline.tables import Hooks, RateLimit, make_log


class Vote(msgspec.Struct):
    option: int
    comment: str = ""


def check(ctx: object, *, payload: object) -> None:
    return None


async def notify(ctx: object, *, row: object) -> None:
    return None


poll = make_log("poll", parent="site", schema={"type": "object", "properties": {"title": {"type": "string"}}})
vote = make_log(
    "vote",
    parent=poll,
    schema=Vote,
    soft_delete=True,
    search="comment",
    rate_limit=RateLimit(50),
    moderators=("moderator",),
    hooks=Hooks(before_append=check, after_append=notify),
)


@pytest.fixture
def polls(tmp_path: Path) -> Iterator[ConsoleStand]:
    with ConsoleStand(tmp_path / "data", tables=[poll, vote]) as stand:
        fill(stand)
        yield stand


def fill(stand: ConsoleStand) -> None:
    stand.tables["poll"].append("main", {"title": "Lunch?"}, user="ann").wait()
    stand.tables["poll"].append("main", {"title": "Where?"}, user="ann").wait()
    votes = stand.tables["vote"]
    for at, (option, comment) in enumerate([(2, "soup"), (10, "Bread"), (1, ""), (2, "apples")]):
        votes.append("main:1", {"option": option, "comment": comment}, user="bob" if at % 2 else "cat").wait()
    votes.append("main:2", {"option": 1}, user="bob").wait()


def rows(stand: ConsoleStand, **query: object) -> list[int]:
    words = "&".join(f"{name}={quote(str(value))}" for name, value in {"parent": "main:1", **query}.items())
    return [row["seq"] for row in stand.get(f"/table/vote/rows?{words}")["rows"]]


def test_tables_are_listed_with_what_is_declared(polls: ConsoleStand) -> None:
    first, second = polls.get("/tables")["tables"]
    assert (first["name"], first["parent"], first["parent_is_table"], first["rows"]) == ("poll", "site", False, 2)
    assert second["last_ts"] == polls.clock.now()
    assert {**second, "bytes": 0, "last_ts": 0} == {
        "name": "vote", "parent": "poll", "parent_is_table": True, "version": 1, "parents": 2, "rows": 5, "bytes": 0,
        "last_ts": 0, "soft_delete": True, "public": False, "feed": False, "search": ["comment"],
        "rate_limit": {"max": 50, "window": 60_000}, "durability": "fsync",
        "hooks": [{"hook": "before_append", "after_commit": False}, {"hook": "after_append", "after_commit": True}],
    }  # fmt: skip


def test_a_server_without_tables_lists_none(stand: ConsoleStand) -> None:
    assert stand.get("/tables") == {"tables": []}
    assert stand.get("/collections") == {"collections": []}
    assert stand.refused("/table/vote") == (404, "not_found")
    session = stand.get("/session")
    assert (session["tables"], session["collections"]) == (False, False)


def test_a_table_has_its_schema_and_versions(polls: ConsoleStand) -> None:
    answer = polls.get("/table/vote")
    assert [(each["version"], each["lens"]) for each in answer["versions"]] == [(1, None)]
    assert answer["versions"][0]["schema"]
    assert answer["schema"] == vote.schema.document
    assert answer["moderators"] == ["moderator"]
    assert polls.get("/session")["tables"] is True


def test_parents_are_searched_sorted_and_paged(polls: ConsoleStand) -> None:
    found = polls.get("/table/vote/parents")
    assert found["total"] == 2
    assert [(each["parent"], each["rows"], each["log"]) for each in found["parents"]] == [
        ("main:1", 4, "vote/main:1"),
        ("main:2", 1, "vote/main:2"),
    ]
    for query, names in (
        ("search=:2", ["main:2"]),
        ("search=VOTE", []),
        ("sort=records&order=asc", ["main:2", "main:1"]),
        ("limit=1&offset=1", ["main:2"]),
    ):
        assert [each["parent"] for each in polls.get(f"/table/vote/parents?{query}")["parents"]] == names, query
    assert polls.refused("/table/vote/parents?sort=lag") == (400, "invalid_request")


def test_a_parent_has_an_owner_and_a_revision_that_changes(polls: ConsoleStand) -> None:
    def seen() -> str:
        return str(polls.get("/table/vote/parent?parent=main:1")["revision"])

    answer = polls.get("/table/vote/parent?parent=main:1")
    assert (answer["owner"], answer["found"], answer["rows"], answer["changes_log"]) == ("ann", True, 4, None)
    votes, revisions = polls.tables["vote"], [seen()]
    for change in (
        lambda: votes.append("main:1", {"option": 3}).wait(),
        lambda: votes.update("main:1:1", {"option": 3}).wait(),
        lambda: votes.rm("main:1:1").wait(),
        lambda: votes.restore("main:1:1").wait(),
        lambda: votes.rm("main:1:2", hard=True).wait(),
    ):
        change()
        revisions.append(seen())
    assert len(set(revisions)) == 6
    assert polls.get("/table/vote/parent?parent=main:1")["changes_log"] == "vote~changes/main:1"
    absent = polls.get("/table/vote/parent?parent=main:9")
    assert (absent["found"], absent["rows"], absent["last_ts"]) == (False, 0, None)


def test_rows_are_read_in_either_direction(polls: ConsoleStand) -> None:
    first = polls.get("/table/vote/rows?parent=main:1&limit=3")
    assert [row["seq"] for row in first["rows"]] == [4, 3, 2]
    assert first["rows"][0] == {
        "option": 2, "comment": "apples", "id": "main:1:4", "parent": "main:1", "seq": 4, "userId": "bob",
        "createdAt": polls.clock.now(), "updatedAt": polls.clock.now(),
    }  # fmt: skip
    assert rows(polls, cursor=first["next"]) == [1]
    up = polls.get("/table/vote/rows?parent=main:1&limit=3&order=asc")
    assert [row["seq"] for row in up["rows"]] == [1, 2, 3]
    assert rows(polls, order="asc", cursor=up["next"]) == [4]
    assert polls.get("/table/vote/rows?parent=empty") == {"rows": [], "next": None}


@pytest.mark.parametrize(
    ("where", "seqs"),
    [
        (".option = 2", [4, 1]),
        (".option >= 2 and .userId = bob", [4, 2]),
        ("bread", [2]),
        (".comment ~ /^(soup|apples)$/", [4, 1]),
        (".option = 7", []),
    ],
)
def test_rows_are_filtered_like_records(polls: ConsoleStand, where: str, seqs: list[int]) -> None:
    assert rows(polls, where=where) == seqs
    assert rows(polls, where=where, order="asc") == seqs[::-1]
    assert sorted(rows(polls, where=where, sort="option"), reverse=True) == seqs
    assert rows(polls, where=where, limit=1) == seqs[:1]


def test_rows_are_sorted_by_a_field(polls: ConsoleStand) -> None:
    polls.tables["vote"].rm("main:1:4").wait()
    assert rows(polls, sort="option", order="asc") == [3, 1, 2]
    assert rows(polls, sort="option") == [2, 1, 3]
    assert rows(polls, sort="comment", order="asc") == [3, 2, 1]
    assert rows(polls, sort="userId", order="asc") == [2, 1, 3]
    page = polls.get("/table/vote/rows?parent=main:1&sort=option&order=asc&limit=2")
    assert ([row["seq"] for row in page["rows"]], page["next"]) == ([3, 1], "2")
    assert rows(polls, sort="option", order="asc", cursor=2) == [2]
    assert rows(polls, parent="empty", sort="option") == []


def test_rows_without_the_field_come_last(polls: ConsoleStand) -> None:
    table = polls.tables["poll"]
    for payload in ({"title": "b", "size": 2}, {"title": "a"}, {"title": "c", "size": 10}):
        table.append("other", payload).wait()
    for order, seqs in (("asc", [1, 3, 2]), ("desc", [3, 1, 2])):
        found = polls.get(f"/table/poll/rows?parent=other&sort=size&order={order}")["rows"]
        assert [row["seq"] for row in found] == seqs


def test_the_rows_of_all_parents_are_in_the_feed(tmp_path: Path) -> None:
    chat = make_log("chat", parent="room", schema=Vote, feed=True)
    with ConsoleStand(tmp_path / "data", "root,hall:r:chat/hall", tables=[chat, poll]) as stand:
        for room in ("hall", "attic", "hall"):
            stand.tables["chat"].append(room, {"option": 1}).wait()
        first = stand.get("/table/chat/feed?limit=2", key="root")
        assert [row["id"] for row in first["rows"]] == ["hall:2", "attic:1"]
        rest = stand.get(f"/table/chat/feed?cursor={first['next']}", key="root")
        assert ([row["id"] for row in rest["rows"]], rest["next"]) == (["hall:1"], None)
        assert [row["id"] for row in stand.get("/table/chat/feed", key="hall")["rows"]] == ["hall:2", "hall:1"]
        assert stand.refused("/table/poll/feed", key="root") == (400, "invalid_request")
        assert stand.refused("/table/chat/feed?cursor=x", key="root") == (400, "invalid_request")


def test_removed_rows_are_in_the_trash(polls: ConsoleStand) -> None:
    polls.tables["vote"].rm_bulk(["main:1:1", "main:1:3"], user="ann").wait()
    assert rows(polls) == [4, 2]
    page = polls.get("/table/vote/trash?parent=main:1&limit=1")
    assert [(row["seq"], row["deletedBy"], row["deletedAt"]) for row in page["rows"]] == [(3, "ann", polls.clock.now())]
    rest = polls.get(f"/table/vote/trash?parent=main:1&cursor={page['next']}")
    assert ([row["seq"] for row in rest["rows"]], rest["next"]) == ([1], None)
    assert polls.refused("/table/poll/trash?parent=main") == (400, "invalid_request")


def test_a_row_has_its_edits(polls: ConsoleStand) -> None:
    votes = polls.tables["vote"]
    for option in (5, 6):
        polls.clock.advance(1_000)
        votes.update("main:1:1", {"option": option}, user="ann").wait()
    answer = polls.get("/table/vote/row?id=main:1:1")
    assert answer["row"]["option"] == 6
    assert [(each["user"], each["previous"]["option"]) for each in answer["edits"]] == [("ann", 2), ("ann", 5)]
    assert polls.get("/table/vote/row?id=main:1:2")["edits"] == []
    assert polls.refused("/table/vote/row?id=main:1:99") == (404, "not_found")


@pytest.mark.parametrize(
    "target",
    [
        "/table/vote/rows",
        "/table/vote/rows?parent=a/b",
        "/table/vote/rows?parent=main:1&order=up",
        "/table/vote/rows?parent=main:1&limit=501",
        "/table/vote/rows?parent=main:1&cursor=x",
        "/table/vote/rows?parent=main:1&sort=optoin",
        "/table/vote/rows?parent=main:1&where=.a%20%3D",
        "/table/vote/trash?parent=main:1&cursor=x",
        "/table/vote/row?id=main",
        "/table/vote/parent",
    ],
)
def test_bad_queries_are_refused(polls: ConsoleStand, target: str) -> None:
    assert polls.refused(target) == (400, "invalid_request")


def test_only_so_many_rows_are_sorted(polls: ConsoleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.tables.columns.MAX_SORTED", 3)
    answered = polls.ask("GET", "/console/api/table/vote/rows?parent=main:1&sort=option")
    assert answered.status == 400
    assert "main:1 has 4 rows; at most 3 can be sorted by a field" in answered.json["error"]["message"]


def test_a_filter_examines_a_bounded_number_of_rows(polls: ConsoleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("strandline.tables.view", "strandline.protocols.console.tables"):
        monkeypatch.setattr(f"{module}.SCAN_ROWS", 2)
    monkeypatch.setattr("strandline.tables.view.READ_ROWS", 2)
    for query in ("order=desc", "order=asc", "sort=option"):
        found, cursor, pages = [], "", 0
        while cursor is not None:
            page = polls.get(f"/table/vote/rows?parent=main:1&where=soup&limit=1&{query}{cursor}")
            found += [row["seq"] for row in page["rows"]]
            cursor, pages = f"&cursor={page['next']}" if page["next"] else None, pages + 1
        assert found == [1], query
        assert pages > 1, query


def test_an_api_key_sees_the_parents_of_its_prefixes(tmp_path: Path) -> None:
    keys = "root,first:r:vote/main:1,orders:r:orders,writer:w"
    with ConsoleStand(tmp_path / "data", keys, tables=[poll, vote]) as stand:
        fill(stand)
        assert [each["name"] for each in stand.get("/tables", key="root")["tables"]] == ["poll", "vote"]
        (only,) = stand.get("/tables", key="first")["tables"]
        assert (only["name"], only["parents"], only["rows"]) == ("vote", 1, 4)
        assert stand.get("/table/vote/parents", key="first")["total"] == 1
        assert len(stand.get("/table/vote/rows?parent=main:1", key="first")["rows"]) == 4
        for target in ("rows?parent=main:2", "trash?parent=main:2", "parent?parent=main:2", "row?id=main:2:1"):
            assert stand.refused(f"/table/vote/{target}", key="first") == (404, "log_not_found"), target
        assert stand.refused("/table/poll", key="first") == (404, "not_found")
        assert stand.get("/tables", key="orders") == {"tables": []}
        assert stand.refused("/tables", key="writer") == (403, "forbidden")
        assert stand.refused("/tables") == (401, "unauthorized")
        shown = [stand.get("/session", key=key)["tables"] for key in ("root", "first", "orders", "")]
        assert shown == [True, True, False, False]
