"""Reads over HTTP, in both variants."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.tables_client import Bed, TablesClient


def fill(client: TablesClient, poll: str, count: int) -> None:
    items = [{"payload": {"optionIdx": at % 3, "comment": f"number {at}"}} for at in range(count)]
    client.write("vote", "appendBulk", parent=poll, items=items)


def seqs(rows: list[Any]) -> list[int]:
    return [row["seq"] for row in rows]


@pytest.mark.parametrize("variant", ["auth", "pub"])
def test_pages_go_from_the_newest_row_to_the_oldest(bed: Bed, poll: str, variant: str) -> None:
    fill(bed.user("bob"), poll, 7)
    ann = bed.user("ann")
    first = ann.read("vote", "list", variant=variant, parent=poll, limit=3)
    assert (seqs(first["page"]), first["isDone"]) == ([7, 6, 5], False)
    second = ann.read("vote", "list", variant=variant, parent=poll, limit=3, cursor=first["continueCursor"])
    assert (seqs(second["page"]), second["isDone"]) == ([4, 3, 2], False)
    last = ann.read("vote", "list", variant=variant, parent=poll, limit=3, cursor=second["continueCursor"])
    assert (seqs(last["page"]), last["isDone"], last["continueCursor"]) == ([1], True, None)


def test_a_row_has_its_payload_beside_what_is_known_of_it(bed: Bed, poll: str) -> None:
    bed.user("bob").append("vote", poll, {"optionIdx": 1, "comment": 'with "quotes"\nand ü'}, idempotencyKey="k")
    (row,) = bed.user("ann").read("vote", "list", parent=poll)["page"]
    assert row.pop("createdAt") == row.pop("updatedAt")
    assert row == {
        "id": f"{poll}:1", "parent": poll, "seq": 1, "userId": "bob", "idempotencyKey": "k", "optionIdx": 1,
        "comment": 'with "quotes"\nand ü', "author": {"name": "Bob"}, "own": False,
    }  # fmt: skip


@pytest.mark.parametrize("table", ["poll", "limited"])
def test_pages_joined_from_bytes_are_those_of_the_tables(bed: Bed, parent: str, table: str) -> None:
    """A condition that always holds takes the other way: the answers must be the same."""
    bob = bed.user("bob")
    for at in range(3):
        payload = {"title": f"number {at}"} if table == "poll" else {"any": [at, None, {"deep": "ü"}]}
        bob.append(table, parent, payload, idempotencyKey=f"k{at}" if at else "")
    bob.write(table, "update", id=f"{parent}:2", patch={"title": "other"} if table == "poll" else {"any": 1})
    quick = bob.read(table, "list", variant="pub", parent=parent)
    slow = bob.read(table, "list", variant="pub", parent=parent, where=json.dumps({"seq": {"$gte": 0}}))
    assert quick == slow
    assert seqs(quick["page"]) == [3, 2, 1]
    assert bob.read(table, "read", id=f"{parent}:2") == quick["page"][1]


@pytest.mark.parametrize("variant", ["auth", "pub"])
def test_rows_behind_a_seq_come_in_order(bed: Bed, poll: str, variant: str) -> None:
    fill(bed.user("bob"), poll, 5)
    ann = bed.user("ann")
    rows, beside = ann.rows_after("vote", variant=variant, parent=poll, seq=1, limit=2)
    assert (seqs(rows), beside) == ([2, 3], {"head": 5, "has-more": True, "last": 3})
    rows, beside = ann.rows_after("vote", variant=variant, parent=poll, seq=3)
    assert (seqs(rows), beside) == ([4, 5], {"head": 5, "has-more": False, "last": 5})
    ann.write("vote", "rm", id=f"{poll}:5")
    rows, beside = ann.rows_after("vote", variant=variant, parent=poll, seq=4)
    assert (rows, beside["has-more"], beside["last"]) == ([], False, 5)


def test_a_page_of_another_origin_may_read_what_is_beside_the_rows(bed: Bed, poll: str) -> None:
    response = bed.user("ann").request(
        "GET", "/tables/vote/pub/listAfter", params={"parent": poll}, headers={"origin": "http://localhost:8080"}
    )
    exposed = {name.strip() for name in response.headers["access-control-expose-headers"].split(",")}
    assert {"Strandline-Head", "Strandline-Has-More", "Strandline-Last", "Strandline-Complete"} <= exposed


def test_some_reads_also_have_a_path_without_a_variant(bed: Bed, poll: str, parent: str) -> None:
    fill(bed.user("bob"), poll, 2)
    bed.user("bob").append("note", parent, {"a": 1})
    ann, bob = bed.user("ann"), bed.user("bob")
    for op, query in (
        ("list", {"parent": poll}),
        ("listAfter", {"parent": poll, "seq": 1}),
        ("read", {"id": f"{poll}:1"}),
        ("search", {"parent": poll, "query": "number"}),
    ):
        assert ann.call("GET", f"/tables/vote/{op}", params=query) == ann.read("vote", op, variant="pub", **query)
    # Without public reads, authors and owners read there.
    assert ann.call("GET", "/tables/note/list", params={"parent": parent})["page"] == []
    assert seqs(bob.call("GET", "/tables/note/list", params={"parent": parent})["page"]) == [1]
    query = {"parent": poll, "indexBy": "optionIdx"}
    for variant in ("auth", "pub"):
        groups = ann.call("GET", f"/tables/vote/{variant}Indexed", params=query)
        assert groups == ann.read("vote", "indexed", variant=variant, **query)
    error = ann.refusal("GET", "/tables/note/pubIndexed", status=404)
    assert (error["table"], error["op"]) == ("note", "pubIndexed")


def test_a_page_can_be_asked_for_with_pagination_options(bed: Bed, poll: str) -> None:
    fill(bed.user("bob"), poll, 3)
    ann = bed.user("ann")
    options = json.dumps({"numItems": 2, "cursor": None})
    first = ann.read("vote", "list", parent=poll, paginationOpts=options)
    assert first == ann.read("vote", "list", parent=poll, limit=2)
    options = json.dumps({"numItems": 2, "cursor": first["continueCursor"]})
    assert seqs(ann.read("vote", "list", parent=poll, paginationOpts=options)["page"]) == [1]


def test_conditions_choose_rows(bed: Bed, poll: str) -> None:
    fill(bed.user("bob"), poll, 6)
    ann = bed.user("ann")
    ann.append("vote", poll, {"optionIdx": 9})

    def chosen(where: Any) -> list[int]:
        return seqs(ann.read("vote", "list", parent=poll, where=json.dumps(where))["page"])

    assert chosen({"optionIdx": 1}) == [5, 2]
    assert chosen({"optionIdx": {"$gte": 1, "$lt": 3}}) == [6, 5, 3, 2]
    assert chosen({"own": True}) == [7]
    assert chosen({"or": [{"optionIdx": 0}, {"seq": {"$between": [6, 7]}}]}) == [7, 6, 4, 1]


@pytest.mark.parametrize("where", ["{", "[]", "7", '{"nothing":1}', '{"optionIdx":{"$like":1}}', '{"own":false}'])
def test_conditions_that_make_no_sense_are_refused(bed: Bed, poll: str, where: str) -> None:
    error = bed.user("ann").refused_read("vote", "list", parent=poll, where=where, status=400)
    assert (error["code"], error["fields"]) == ("VALIDATION_FAILED", ["where"])


def test_who_wrote_a_row_sees_their_own_and_the_owner_sees_all(bed: Bed, poll: str) -> None:
    ann, bob, eve = bed.user("ann"), bed.user("bob"), bed.user("eve")
    for client in (bob, eve, bob):
        client.append("vote", poll, {"optionIdx": 1, "comment": f"by {client.user}"})
    for client, seen in ((ann, [3, 2, 1]), (bob, [3, 1]), (eve, [2]), (bed.user("mallory"), [])):
        assert seqs(client.read("vote", "list", parent=poll)["page"]) == seen
        assert seqs(client.read("vote", "listAfter", parent=poll)) == seen[::-1]
        assert seqs(client.read("vote", "search", parent=poll, query="by")) == seen
        assert client.read("vote", "counts", parent=poll, by="optionIdx")["total"] == len(seen)
        groups = client.read("vote", "indexed", parent=poll, indexBy="optionIdx")
        assert [seqs(rows) for rows in groups.values()] == ([seen] if seen else [])
        assert (client.read("vote", "read", id=f"{poll}:2") is None) == (2 not in seen)
        assert seqs(client.read("vote", "list", variant="pub", parent=poll)["page"]) == [3, 2, 1]


def test_rows_are_grouped_and_counted_by_a_field(bed: Bed, poll: str) -> None:
    fill(bed.user("bob"), poll, 5)
    ann = bed.user("ann")
    groups = ann.read("vote", "indexed", parent=poll, indexBy="optionIdx")
    assert {value: seqs(rows) for value, rows in groups.items()} == {"0": [4, 1], "1": [5, 2], "2": [3]}
    counts = ann.read("vote", "counts", variant="pub", parent=poll, by="optionIdx")
    assert counts == {"counts": {"0": 2, "1": 2, "2": 1}, "total": 5}
    misspelt = {"counts": {"by": "optionIndex"}, "list": {"where": '{"optionIndex":1}'}}
    for op, query in misspelt.items():
        error = ann.refused_read("vote", op, parent=poll, **query, status=400)
        assert error["message"].endswith("'optionIndex'; did you mean 'optionIdx'?")


def test_rows_are_found_by_their_words(bed: Bed, poll: str) -> None:
    fill(bed.user("bob"), poll, 5)
    ann = bed.user("ann")
    rows, beside = ann.found("vote", parent=poll, query="number 3")
    assert (seqs(rows), beside) == ([4], {"complete": True})
    assert len(ann.read("vote", "search", variant="pub", parent=poll, query="number", limit=2)) == 2
    ann.write("vote", "rm", id=f"{poll}:4")
    assert ann.read("vote", "search", parent=poll, query="number 3") == []


def test_the_history_of_a_row_tells_what_it_was(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    id = bob.append("vote", poll, {"optionIdx": 1})["id"]
    assert bob.read("vote", "history", id=id) == {"edits": []}
    bob.write("vote", "update", id=id, patch={"optionIdx": 2})
    bed.user("ann").write("vote", "update", id=id, patch={"comment": "edited"})
    edits = bob.read("vote", "history", id=id)["edits"]
    assert [(edit["user"], edit["previous"]) for edit in edits] == [
        ("bob", {"optionIdx": 1}),
        ("ann", {"optionIdx": 2}),
    ]
    assert edits[0]["at"] <= edits[1]["at"]
    error = bed.user("eve").refused_read("vote", "history", id=id, status=404)
    assert error["code"] == "NOT_FOUND"


def test_what_is_removed_is_hidden_everywhere(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    fill(bob, poll, 3)
    bob.write("vote", "rm", id=f"{poll}:2")
    for variant in ("auth", "pub"):
        assert seqs(bob.read("vote", "list", variant=variant, parent=poll)["page"]) == [3, 1]
        assert seqs(bob.read("vote", "listAfter", variant=variant, parent=poll)) == [1, 3]
        assert bob.read("vote", "read", variant=variant, id=f"{poll}:2") is None
        assert bob.read("vote", "search", variant=variant, parent=poll, query='"number 1"') == []
        assert set(bob.read("vote", "indexed", variant=variant, parent=poll, indexBy="optionIdx")) == {"0", "2"}
        assert bob.read("vote", "counts", variant=variant, parent=poll, by="optionIdx")["total"] == 2
        bob.refused_read("vote", "history", variant=variant, id=f"{poll}:2", status=404)


def test_a_poll_that_is_not_public_is_for_those_it_concerns(bed: Bed, parent: str) -> None:
    ann, bob = bed.user("ann"), bed.user("bob")
    poll = ann.append("poll", parent, {"title": "Secret?", "isPublic": False})["id"]
    ann.append("vote", poll, {"optionIdx": 1})
    assert seqs(ann.read("vote", "list", parent=poll)["page"]) == [1]
    for op, query in (("list", {}), ("listAfter", {}), ("counts", {"by": "optionIdx"}), ("search", {"query": "x"})):
        assert bob.refused_read("vote", op, variant="pub", parent=poll, **query, status=404)["code"] == "NOT_FOUND"
    assert bob.refused_read("vote", "read", variant="pub", id=f"{poll}:1", status=404)["code"] == "NOT_FOUND"
    payload = {"optionIdx": 1}
    assert bob.refused_write("vote", "append", parent=poll, payload=payload, status=404)["code"] == "NOT_FOUND"
    ann.write("poll", "update", id=poll, patch={"isPublic": True})
    assert seqs(bob.read("vote", "list", variant="pub", parent=poll)["page"]) == [1]


def test_votes_need_a_poll_that_is_there(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    for poll in (f"{parent}:1", "nonsense"):
        payload = {"optionIdx": 1}
        assert bob.refused_write("vote", "append", parent=poll, payload=payload, status=404)["code"] == "NOT_FOUND"
        assert bob.refused_read("vote", "list", parent=poll, status=404)["code"] == "NOT_FOUND"


def test_a_parent_without_rows_has_none(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    assert bob.read("note", "list", parent=parent) == {"page": [], "isDone": True, "continueCursor": None}
    assert bob.rows_after("note", parent=parent) == ([], {"head": 0, "has-more": False, "last": 0})
    assert bob.read("note", "read", id=f"{parent}:1") is None
    assert bob.read("note", "counts", parent=parent, by="a") == {"counts": {}, "total": 0}
    assert bob.read("note", "indexed", parent=parent, indexBy="a") == {}


@pytest.mark.parametrize(
    ("op", "query", "field"),
    [
        ("list", {}, "parent"),
        ("list", {"parent": "a/b"}, "parent"),
        ("list", {"parent": "p", "limit": "0"}, "limit"),
        ("list", {"parent": "p", "limit": "many"}, "limit"),
        ("list", {"parent": "p", "cursor": "x"}, "cursor"),
        ("list", {"parent": "p", "paginationOpts": '{"numItems":0}'}, "paginationOpts"),
        ("list", {"parent": "p", "paginationOpts": '{"limit":1}'}, "paginationOpts"),
        ("list", {"parent": "p", "paginationOpts": '{"numItems":1}', "limit": "1"}, "paginationOpts"),
        ("list", {"parent": "p", "paginationOpts": '{"numItems":1,"cursor":"x"}'}, "cursor"),
        ("listAfter", {"parent": "p", "seq": "-1"}, "seq"),
        ("listAfter", {"parent": "p", "seq": "9" * 30}, "seq"),
        ("read", {}, "id"),
        ("read", {"id": "p"}, "id"),
        ("history", {"id": ":1"}, "id"),
        ("indexed", {"parent": "p"}, "indexBy"),
        ("counts", {"parent": "p"}, "by"),
        ("live", {}, "parent"),
        ("live", {"parent": "p", "after": "then"}, "after"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(bed: Bed, op: str, query: dict[str, str], field: str) -> None:
    error = bed.user("bob").refused_read("note", op, **query, status=400)
    assert (error["code"], error["fields"]) == ("VALIDATION_FAILED", [field])


@pytest.mark.both_lanes
def test_the_trash_shows_removed_rows_to_the_owner_and_their_authors(bed: Bed, poll: str) -> None:
    ann, bob = bed.user("ann"), bed.user("bob")
    fill(bob, poll, 3)
    fill(ann, poll, 1)
    bob.write("vote", "rm", id=f"{poll}:2")
    ann.write("vote", "purgeByParent", parent=poll)
    first = ann.read("vote", "trash", parent=poll, limit=2)
    assert [(row["seq"], row["deletedBy"]) for row in first["page"]] == [(4, "ann"), (3, "ann")]
    last = ann.read("vote", "trash", parent=poll, cursor=first["continueCursor"])
    assert [(row["seq"], row["deletedBy"]) for row in last["page"]] == [(2, "bob"), (1, "ann")]
    assert (first["isDone"], last["isDone"]) == (False, True)
    assert last["page"][0]["deletedAt"] <= last["page"][1]["deletedAt"]
    assert seqs(bob.read("vote", "trash", parent=poll)["page"]) == [3, 2, 1]
    assert bed.user("cat").read("vote", "trash", parent=poll)["page"] == []
    bob.write("vote", "restore", id=f"{poll}:2")
    assert seqs(ann.read("vote", "trash", parent=poll)["page"]) == [4, 3, 1]
    for table, variant in (("vote", "pub"), ("poll", "auth")):
        error = ann.refusal("GET", f"/tables/{table}/{variant}/trash?parent={poll}", status=404)
        assert "has no operation" in error["message"]
