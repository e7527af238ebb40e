"""Answers are what the structs of the protocol declare, also where stored bytes are spliced in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.strict_answers import decode_strictly
from support.tables_client import Bed

from strandline.protocols.tables.wire import ANSWERS, TableErrorAnswer
from strandline.tables import Row, TableError
from strandline.tables.errors import ErrorMembers

ROW = {field.encode_name for field in msgspec.structs.fields(Row)} - {"payload"}


def rows_of(answer: Any) -> list[dict[str, Any]]:
    """The rows of an answer, wherever they are in it."""
    if isinstance(answer, dict):
        return [answer] if "seq" in answer else [row for value in answer.values() for row in rows_of(value)]
    return [row for value in answer for row in rows_of(value)] if isinstance(answer, list) else []


PAYLOAD = {"optionIdx": 1, "comment": "yes", "voter": ""}


def test_every_answer_is_as_declared(bed: Bed, poll: str) -> None:
    ann, row = bed.user("ann"), f"{poll}:1"
    requests: dict[str, dict[str, Any]] = {
        "append": {"parent": poll, "payload": PAYLOAD, "idempotencyKey": "k"},
        "appendBulk": {"parent": poll, "items": [{"payload": PAYLOAD}]},
        "update": {"id": row, "patch": {"voter": "ann"}},
        "auth/list": {"parent": poll, "limit": 1},
        "auth/listAfter": {"parent": poll},
        "auth/read": {"id": row},
        "auth/search": {"parent": poll, "query": "yes"},
        "auth/indexed": {"parent": poll, "indexBy": "optionIdx"},
        "auth/counts": {"parent": poll, "by": "optionIdx"},
        "auth/history": {"id": row},
        "auth/feed": {"limit": 1},
        "schema": {},
        "rm": {"id": row},
        "auth/trash": {"parent": poll},
        "restore": {"id": row},
        "rmBulk": {"ids": [row, f"{poll}:99"]},
        "restoreByParent": {"parent": poll},
        "purgeByParent": {"parent": poll},
    }
    assert {path.rpartition("/")[2] for path in requests} == ANSWERS.keys()
    for path, sent in requests.items():
        if path.startswith("auth/") or path == "schema":
            response = ann.request("GET", f"/tables/vote/{path}", params=sent)
        else:
            response = ann.request("POST", f"/tables/vote/{path}", sent)
        assert response.status_code == 200, (path, response.text)
        op = path.rpartition("/")[2]
        decode_strictly(response.content, ANSWERS[op])
        for row in rows_of(response.json()) if op not in ("append", "appendBulk", "schema") else []:
            assert row.keys() <= ROW | PAYLOAD.keys()
            msgspec.convert({**row, "payload": {}}, Row)


def test_errors_are_as_declared(bed: Bed, poll: str) -> None:
    ann = bed.user("ann")
    row = ann.append("vote", poll, PAYLOAD)["id"]
    items = [{"payload": PAYLOAD}, {"payload": {"optionIdx": "x"}}]
    for op, body, member in (
        ("appendBulk", {"parent": poll, "items": items}, "index"),
        ("update", {"id": row, "patch": PAYLOAD, "expectedUpdatedAt": 1}, "updatedAt"),
        ("rm", {"id": row, "hrd": True}, "op"),
    ):
        response = ann.request("POST", f"/tables/vote/{op}", body)
        assert response.status_code in (400, 409)
        assert member in response.json()["error"]
        decode_strictly(response.content, TableErrorAnswer)


def test_every_member_of_an_error_is_declared() -> None:
    (error,) = msgspec.structs.fields(TableErrorAnswer)
    assert ErrorMembers.__annotations__.keys() <= {field.encode_name for field in msgspec.structs.fields(error.type)}


def test_a_hook_cannot_invent_members_of_an_error() -> None:
    with pytest.raises(TypeError, match="unknown member 'field' of an error; did you mean 'fields'"):
        TableError("FORBIDDEN", "no", field=["a"])  # type: ignore[call-arg]
