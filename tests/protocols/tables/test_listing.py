"""The list of the declared tables."""

from __future__ import annotations

from pathlib import Path

import jsonschema_rs
import pytest
from support.server_process import StartServer
from support.strict_answers import decode_strictly
from support.tables_client import POLLS, Bed

from strandline.protocols.tables.wire import TablesAnswer

DECLARATIONS = """
from strandline.tables import make_log

note = make_log("note", parent="desk", schema={"type": "object"}, moderators=["boss", "admin"], durability="disk")


def identify(headers):
    return headers.get("authorization", "").removeprefix("Bearer ") or None
"""


def test_the_declared_tables_are_listed(bed: Bed) -> None:
    response = bed.user("ann").request("GET", "/tables")
    assert response.status_code == 200
    tables = {table.name: table for table in decode_strictly(response.content, TablesAnswer).tables}
    assert list(tables) == ["poll", "vote", "note", "limited", "message", "audit"]
    said = {table["name"]: table for table in response.json()["tables"]}
    assert said["vote"]["parent"] == {"name": "poll", "kind": "table"}
    assert said["poll"]["parent"] == {"name": "site", "kind": "label"}
    assert said["vote"]["fields"] == ["optionIdx", "voter", "comment"]
    assert said["poll"]["fields"] == ["title", "isPublic"]
    assert said["vote"]["options"] == {
        "softDelete": True, "pub": "isPublic", "search": ["comment"], "rateLimit": None, "withAuthor": True,
        "moderators": [], "feed": True, "durability": "fsync",
    }  # fmt: skip
    assert said["limited"]["options"]["rateLimit"] == {"max": 3, "window": 3_600_000}
    assert (said["poll"]["options"]["pub"], said["note"]["options"]["pub"]) == (True, False)
    validator = jsonschema_rs.validator_for(said["poll"]["schema"])
    assert validator.is_valid({"title": "Lunch?"})
    assert not validator.is_valid({"title": 7})


def test_every_listed_operation_is_there(bed: Bed) -> None:
    ann = bed.user("ann")
    for table in ann.call("GET", "/tables")["tables"]:
        for operation in table["operations"]:
            body = {} if operation["method"] == "POST" else None
            if operation["name"] == "schema":
                assert ann.call("GET", operation["path"])["table"] == table["name"]
                continue
            path = operation["path"] if body is not None else f"{operation['path']}?limit=x&after=x"
            error = ann.refusal(operation["method"], path, body, status=400)
            assert error["table"] == table["name"]
            assert operation["name"].endswith((error["op"].replace("/", "."), "Indexed"))


@pytest.mark.parametrize("keys", ["", "boss,reader:read"])
def test_only_known_callers_see_the_list(start_server: StartServer, tmp_path: Path, keys: str) -> None:
    (tmp_path / "declared.py").write_text(DECLARATIONS)
    bed = Bed(start_server(keys=keys, declare=tmp_path / "declared.py" if not keys else POLLS))
    for path in ("/tables", "/tables/types.ts"):
        assert bed.user().refusal("GET", path, status=401)["code"] == "NOT_AUTHENTICATED"
        assert bed.user(key="reader" if keys else "ann").request("GET", path).status_code == 200
    tables = bed.user(key="reader" if keys else "ann").call("GET", "/tables")["tables"]
    if not keys:
        assert tables[0]["options"]["moderators"] == ["admin", "boss"]
        assert tables[0]["options"]["durability"] == "disk"
    bed.close()


def test_a_key_with_prefixes_sees_the_tables_that_it_may_access(start_server: StartServer) -> None:
    bed = Bed(start_server(keys="all:read,vote:read:vote,part:read:vote/main|note/", declare=POLLS))
    for key, expected in (("vote", ["vote"]), ("part", ["vote", "note"])):
        user = bed.user(key=key)
        assert [table["name"] for table in user.call("GET", "/tables")["tables"]] == expected
        types = user.request("GET", "/tables/types.ts").text
        assert "VotePayload" in types
        assert ("NotePayload" in types) == ("note" in expected)
        assert "PollPayload" not in types
    assert len(bed.user(key="all").call("GET", "/tables")["tables"]) == 6
    assert bed.user(key="part").call("GET", "/tables/note/schema")["table"] == "note"
    assert bed.user(key="vote").refusal("GET", "/tables/note/schema", status=403)["code"] == "FORBIDDEN"
    bed.close()


def test_a_server_without_tables_lists_none(start_server: StartServer) -> None:
    bed = Bed(start_server())
    assert bed.user().call("GET", "/tables") == {"tables": []}
    bed.close()
