"""Writes over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import StartServer
from support.tables_client import POLLS, Bed


def test_an_append_tells_where_the_row_is(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    assert bob.append("vote", poll, {"optionIdx": 1}) == {"seq": 1, "created": True, "id": f"{poll}:1"}
    assert bob.append("vote", poll, {"optionIdx": 2}) == {"seq": 2, "created": True, "id": f"{poll}:2"}


def test_an_idempotency_key_makes_a_row_once(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    first = bob.append("vote", poll, {"optionIdx": 1}, idempotencyKey="k")
    # Neither validated nor compared: it is a repetition.
    again = bob.append("vote", poll, {"optionIdx": 99}, idempotencyKey="k")
    assert again == {**first, "created": False}
    (row,) = bob.read("vote", "list", parent=poll)["page"]
    assert (row["optionIdx"], row["idempotencyKey"]) == (1, "k")


def test_bulk_appends_get_seqs_that_follow_each_other(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    items = [{"payload": {"optionIdx": at}, "idempotencyKey": f"k{at % 2}"} for at in range(3)]
    answer = bob.write("vote", "appendBulk", parent=poll, items=items)
    assert answer == {
        "count": 2,
        "results": [
            {"seq": 1, "created": True, "id": f"{poll}:1"},
            {"seq": 2, "created": True, "id": f"{poll}:2"},
            {"seq": 1, "created": False, "id": f"{poll}:1"},
        ],
    }


def test_of_a_bulk_append_everything_is_there_or_nothing(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    items = [{"payload": {"optionIdx": 1}}, {"payload": {"optionIdx": "one"}}]
    error = bob.refused_write("vote", "appendBulk", parent=poll, items=items, status=400)
    assert (error["code"], error["index"], error["fields"]) == ("VALIDATION_FAILED", 1, ["optionIdx"])
    assert bob.read("vote", "list", parent=poll)["page"] == []


def test_a_bulk_has_a_hundred_items_at_the_most(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    items = [{"payload": {}}] * 101
    assert bob.refused_write("note", "appendBulk", parent=parent, items=items, status=400)["fields"] == ["items"]
    assert bob.write("note", "appendBulk", parent=parent, items=items[1:])["count"] == 100
    ids = [f"{parent}:{at}" for at in range(1, 102)]
    assert bob.refused_write("note", "rmBulk", ids=ids, status=400)["fields"] == ["ids"]
    assert bob.write("note", "rmBulk", ids=ids[:-1])["count"] == 100


def test_an_update_gives_the_whole_row_with_its_new_time(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    id = bob.append("vote", poll, {"optionIdx": 1, "comment": "first"})["id"]
    before = bob.read("vote", "read", id=id)
    row = bob.write("vote", "update", id=id, patch={"optionIdx": 2}, expectedUpdatedAt=before["updatedAt"])
    assert row["updatedAt"] > before["updatedAt"]
    assert row == {**before, "optionIdx": 2, "updatedAt": row["updatedAt"]}
    assert (row["author"], row["own"]) == ({"name": "Bob"}, True)
    assert bob.read("vote", "read", id=id) == row


def test_a_stale_update_is_a_conflict_and_says_what_is_there(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    id = bob.append("vote", poll, {"optionIdx": 1})["id"]
    now = bob.write("vote", "update", id=id, patch={"optionIdx": 2})["updatedAt"]
    error = bob.refused_write("vote", "update", id=id, patch={"optionIdx": 3}, expectedUpdatedAt=now - 1, status=409)
    assert (error["code"], error["updatedAt"]) == ("CONFLICT", now)
    assert bob.read("vote", "read", id=id)["optionIdx"] == 2


def test_the_items_of_a_bulk_are_payloads_with_keys_beside_their_fields(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    items = [{"optionIdx": 1, "idempotencyKey": "a"}, {"optionIdx": 2}, {"payload": {"optionIdx": 3}}]
    assert bob.write("vote", "appendBulk", parent=poll, items=items)["count"] == 3
    again = bob.write("vote", "appendBulk", parent=poll, items=[{"optionIdx": 9, "idempotencyKey": "a"}])
    assert again == {"count": 0, "results": [{"seq": 1, "created": False, "id": f"{poll}:1"}]}
    rows = bob.read("vote", "listAfter", parent=poll)
    assert [(row["optionIdx"], row.get("idempotencyKey")) for row in rows] == [(1, "a"), (2, None), (3, None)]
    wrong = [{"optionIdx": 1}, {"optionIdx": "x"}]
    error = bob.refused_write("vote", "appendBulk", parent=poll, items=wrong, status=400)
    assert (error["code"], error["fields"], error["index"]) == ("VALIDATION_FAILED", ["optionIdx"], 1)


def test_rows_are_removed_and_restored(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    id = bob.append("vote", poll, {"optionIdx": 1})["id"]
    row = bob.read("vote", "read", id=id)
    assert bob.write("vote", "rm", id=id) == {"deleted": True, "id": id, "soft": True}
    assert bob.write("vote", "rm", id=id) == {"deleted": False, "id": id, "soft": True}
    assert bob.read("vote", "read", id=id) is None
    assert bob.write("vote", "restore", id=id) == row
    assert bob.write("vote", "rm", id=id, hard=True) == {"deleted": True, "id": id, "soft": False}
    assert bob.refused_write("vote", "restore", id=id, status=404)["code"] == "NOT_FOUND"
    # Its number is never given to another row.
    assert bob.append("vote", poll, {"optionIdx": 1})["seq"] == 2


def test_several_rows_are_removed_in_one_step(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    ids = [bob.append("vote", poll, {"optionIdx": at})["id"] for at in range(3)]
    answer = bob.write("vote", "rmBulk", ids=[ids[0], f"{poll}:99", ids[2]])
    assert (answer["count"], [one["deleted"] for one in answer["results"]]) == (2, [True, False, True])
    assert [row["seq"] for row in bob.read("vote", "list", parent=poll)["page"]] == [2]


def test_all_rows_of_a_parent_are_purged_and_restored_by_its_owner(bed: Bed, poll: str) -> None:
    ann, bob = bed.user("ann"), bed.user("bob")
    for at in range(3):
        bob.append("vote", poll, {"optionIdx": at})
    assert bob.refused_write("vote", "purgeByParent", parent=poll, status=403)["code"] == "FORBIDDEN"
    assert ann.write("vote", "purgeByParent", parent=poll) == {"deleted": 3, "soft": True}
    assert ann.read("vote", "list", parent=poll)["page"] == []
    assert bob.refused_write("vote", "restoreByParent", parent=poll, status=403)["code"] == "FORBIDDEN"
    assert ann.write("vote", "restoreByParent", parent=poll) == {"restored": 3}
    assert ann.write("vote", "purgeByParent", parent=poll, hard=True) == {"deleted": 3, "soft": False}
    assert ann.write("vote", "restoreByParent", parent=poll) == {"restored": 0}


def test_only_the_author_and_the_owner_change_a_row(bed: Bed, poll: str) -> None:
    ann, bob, eve = bed.user("ann"), bed.user("bob"), bed.user("eve")
    id = bob.append("vote", poll, {"optionIdx": 1})["id"]
    for op, body in (("update", {"patch": {"optionIdx": 2}}), ("rm", {})):
        assert eve.refused_write("vote", op, id=id, **body, status=403)["code"] == "FORBIDDEN"
    assert ann.write("vote", "update", id=id, patch={"optionIdx": 3})["optionIdx"] == 3
    assert ann.write("vote", "rm", id=id)["deleted"]
    for user in (eve, bob):
        assert user.refused_write("vote", "restore", id=id, status=403)["code"] == "FORBIDDEN"
    assert ann.write("vote", "restore", id=id)["optionIdx"] == 3
    assert bob.write("vote", "rm", id=id)["deleted"]
    assert bob.write("vote", "restore", id=id)["optionIdx"] == 3


def test_a_table_without_soft_delete_has_nothing_to_restore(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    id = bob.append("note", parent, {"a": 1})["id"]
    assert bob.write("note", "rm", id=id) == {"deleted": True, "id": id, "soft": False}
    for op in ("restore", "restoreByParent"):
        error = bob.refusal("POST", f"/tables/note/{op}", {"id": id}, status=404)
        assert error["code"] == "NOT_FOUND"


def test_hooks_are_part_of_the_write(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    id = bob.append("message", parent, {"content": "hello"})["id"]
    assert bob.read("message", "read", id=id)["stamped"] is True
    audits = bob.read("audit", "list", variant="pub", parent="messages", limit=1000)["page"]
    assert [row["what"] for row in audits if row["what"].startswith(parent)] == [id]
    payload = {"content": "forbidden words"}
    error = bob.refused_write("message", "append", parent=parent, payload=payload, status=403)
    assert (error["code"], error["message"]) == ("FORBIDDEN", "not here")
    assert len(bob.read("message", "list", parent=parent)["page"]) == 1


@pytest.mark.parametrize(
    ("content", "hook", "cause"),
    [
        ("broken", "before_append", "RuntimeError: the hook is broken"),
        ("unheard of", "before_append", "TypeError: unknown code 'TOO_LATE' of an error; expected one of NOT_AUTH"),
        ("not audited", "after_append", "Invalid: what"),
    ],
)
def test_the_failure_of_a_hook_is_reported_as_the_hooks(
    bed: Bed, parent: str, content: str, hook: str, cause: str
) -> None:
    bob = bed.user("bob")
    error = bob.refused_write("message", "append", parent=parent, payload={"content": content}, status=500)
    assert (error["code"], error["hook"], error["table"]) == ("HOOK_FAILED", hook, "message")
    assert "fields" not in error
    assert error["message"] == f"the hook {hook} of the table message failed; nothing was written"
    log = bed.server.log()
    assert error["message"] in log
    assert cause in log
    assert bob.read("message", "list", parent=parent)["page"] == []


def test_an_async_hook_runs_after_its_write(start_server: StartServer) -> None:
    server = start_server(declare=POLLS)
    bed = Bed(server)
    bob = bed.user("bob")
    with bob.events("/tables/audit/pub/live?parent=reports") as events:
        assert events.next().event == "ready"
        assert bob.append("limited", "d", {"any": "fine"})["created"]
        assert events.next().json["what"] == "d:1 by bob"
    assert bob.append("limited", "d", {"any": "broken"})["created"]
    assert bob.append("limited", "d", {"any": "last"})["created"]
    bed.close()
    # Stopping waits for hooks.
    server.stop()
    assert "the hook after_append of the table limited failed: RuntimeError('the report is broken')" in server.log()
    server.start()
    bed = Bed(server)
    reports = bed.user().read("audit", "listAfter", variant="pub", parent="reports")
    assert [row["what"] for row in reports] == ["d:1 by bob", "d:3 by bob"]
    bed.close()


def test_appends_with_and_without_hooks_at_once_all_succeed(bed: Bed, parent: str) -> None:
    """What comes while the other thread writes waits for it, and nothing gets lost on the way."""
    from concurrent.futures import ThreadPoolExecutor

    def append(number: int) -> int:
        client = bed.user(f"user-{number}")
        for at in range(10):
            client.append("message", parent, {"content": f"{number}.{at}"})
            client.append("note", parent, {"content": f"{number}.{at}"}, idempotencyKey=f"{number}.{at}")
        return number

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(append, range(4))) == [0, 1, 2, 3]
    page = bed.user("anybody").read("message", "listAfter", variant="pub", parent=parent)
    assert sorted(row["content"] for row in page) == sorted(f"{n}.{at}" for n in range(4) for at in range(10))
    for number in range(4):
        rows = bed.user(f"user-{number}").read("note", "listAfter", parent=parent)
        assert [row["content"] for row in rows] == [f"{number}.{at}" for at in range(10)]


@pytest.mark.parametrize(
    ("op", "body", "words"),
    [
        ("append", b"{", "the request is not valid JSON: Input data was truncated"),
        ("append", b"[]", "Expected `object`"),
        ("append", b'{"payload":{}}', "parent"),
        ("append", b'{"parent":"p"}', "payload"),
        ("append", b'{"parent":"p","payload":[]}', "payload must be an object"),
        (
            "append",
            b'{"parent":"p","payload":{},"idempotencykey":"k"}',
            "unknown member 'idempotencykey'",
        ),
        ("append", b'{"parent":"a/b","payload":{}}', "parent must be"),
        ("append", b'{"parent":"","payload":{}}', "parent must be"),
        ("append", b'{"parent":"p","payload":{"$a":1}}', "$a"),
        ("append", b'{"parent":"p","payload":{"seq":1}}', "seq"),
        ("append", b'{"parent":"p","payload":{"a":"\xc4"}}', "UTF-8"),
        ("append", b'{"parent":"p","payload":' + b"[" * 5000, "nested"),
        ("appendBulk", b'{"parent":"p","items":{}}', "Expected `array`"),
        ("appendBulk", b'{"parent":"p","items":[7]}', "object"),
        ("appendBulk", b'{"parent":"p","items":[{"payload":7}]}', "payload"),
        ("update", b'{"id":"nonsense","patch":{"a":1}}', "id must be"),
        ("update", b'{"id":"p:1","patch":{"a":1},"expectedUpdatedAt":"x"}', "expectedUpdatedAt"),
        ("rm", b'{"id":7}', "id"),
        ("rmBulk", b'{"ids":[]}', "ids"),
        ("purgeByParent", b"{}", "parent"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(bed: Bed, op: str, body: bytes, words: str) -> None:
    error = bed.user("bob").refusal("POST", f"/tables/note/{op}", body, status=400)
    assert error["code"] == "VALIDATION_FAILED"
    assert words in error["message"], error
    assert (error["table"], error["op"]) == ("note", op)


def test_what_is_wrong_with_a_payload_is_told_field_by_field(bed: Bed, poll: str) -> None:
    payload: dict[str, Any] = {"optionIdx": -1, "voter": 7, "other": 1}
    error = bed.user("bob").refused_write("vote", "append", parent=poll, payload=payload, status=400)
    assert sorted(error["fields"]) == ["optionIdx", "other", "voter"]
    assert set(error["fieldErrors"]) == {"optionIdx", "other", "voter"}
    assert error["message"].startswith("Invalid: ")
