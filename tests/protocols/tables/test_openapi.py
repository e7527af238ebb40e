"""The OpenAPI document of a server with tables, and the server held against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import BaseSchema, Case, GenerationMode
from support.openapi_fuzz import CHECKS, TIMEOUT_SECONDS, fuzz, strict_document
from support.server_process import ServerProcess
from support.tables_client import POLLS, TablesClient

from strandline.protocols.tables.listing import TYPES
from strandline.protocols.tables.openapi import describe
from strandline.protocols.tables.paths import SCHEMA, read_path, read_paths, reads_of, write_path, writes_of
from strandline.server.declarations import load
from strandline.server.openapi_routes import DOCUMENT_PATH

#: Requests that are made up for each operation.
EXAMPLES = 3
TABLES = {table.name: table for table in load(str(POLLS)).tables}
#: Something of everything: one with a parent that is a row and all that there is to declare, one with hooks.
FUZZED = ("vote", "message")
OPERATIONS = [
    (method, path)
    for name in FUZZED
    for method, path in [
        *(("POST", write_path(name, op)) for op in writes_of(TABLES[name])),
        *(("GET", read_path(name, variant, op)) for variant, op in reads_of(TABLES[name]) if op != "live"),
    ]
]


class Bed:
    def __init__(self, server: ServerProcess, document: dict[str, Any], session: requests.Session) -> None:
        self.server = server
        self.document = document
        self.schema: BaseSchema = schemathesis.openapi.from_dict(strict_document(document))
        self.session = session

    def furnish(self) -> str:
        """What requests are about: rows, each of them edited. Returns the id of a vote."""
        client = TablesClient(self.server.url, "ann")
        poll = client.append("poll", "site", {"title": "Lunch?"}, idempotencyKey="poll")["id"]
        assert poll == "site:1"
        for table, payload in (("vote", {"optionIdx": 1, "comment": "yes"}), ("message", {"content": "hi"})):
            id = client.append(table, poll, payload)["id"]
            client.write(table, "update", id=id, patch=payload)
        vote: str = client.append("vote", poll, {"optionIdx": 1, "comment": "yes"})["id"]
        client.close()
        return vote


@pytest.fixture(scope="module")
def bed(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    data = tmp_path_factory.mktemp(f"fuzzed-tables-{lane}") / "data"
    process = ServerProcess(data, fast_lane=lane == "fast", settings={"declare": POLLS})
    with requests.Session() as session:
        session.trust_env = False
        session.headers["strandline-user"] = "ann"
        try:
            process.start()
            bed = Bed(process, session.get(process.url + DOCUMENT_PATH).json(), session)
            bed.furnish()
            yield bed
        finally:
            process.end()


def about(case: Case, data: st.DataObject) -> None:
    """Point a request at something that is there, more often than not."""
    if isinstance(case.body, dict):
        for name, values in (("parent", ["site:1", "elsewhere"]), ("id", ["site:1:1", "site:1:2", "elsewhere:9"])):
            if name in case.body and isinstance(case.body[name], str):
                case.body[name] = data.draw(st.sampled_from(values) | st.just(case.body[name]))
    query = case.query or {}
    for name, values in (
        ("parent", ["site:1", "elsewhere"]),
        ("id", ["site:1:1", "site:1:2"]),
        ("indexBy", ["optionIdx", "content"]),
        ("by", ["optionIdx", "content"]),
        ("query", ["yes", "hi"]),
        ("where", ['{"optionIdx":1}', '{"seq":{"$gt":0}}']),
        ("cursor", ["1", "5"]),
    ):
        if name in query:
            query[name] = data.draw(st.sampled_from(values) | st.just(query[name]))
    if case.headers is not None and "Strandline-User" in case.headers:
        case.headers["Strandline-User"] = data.draw(st.sampled_from(["ann", "bob"]))


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_requests_that_could_make_sense_are_answered_as_the_document_says(bed: Bed, method: str, path: str) -> None:
    bed.furnish()
    fuzz(bed.schema[path][method], GenerationMode.POSITIVE, EXAMPLES, about, bed.server.url, bed.session)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_requests_that_make_no_sense_are_answered_as_the_document_says(bed: Bed, method: str, path: str) -> None:
    def leave(case: Case, data: st.DataObject) -> None:
        pass

    fuzz(bed.schema[path][method], GenerationMode.NEGATIVE, EXAMPLES, leave, bed.server.url, bed.session)


def ask(bed: Bed, method: str, path: str, **parts: Any) -> Any:
    case = bed.schema[path][method].Case(**parts)
    response = case.call_and_validate(
        base_url=bed.server.url, session=bed.session, checks=CHECKS, timeout=TIMEOUT_SECONDS
    )
    return response


def test_every_read_and_write_that_makes_sense_is_as_the_document_says(bed: Bed) -> None:
    vote, row = "/tables/vote", bed.furnish()
    query: dict[str, dict[str, Any]] = {
        "list": {"parent": "site:1", "limit": 2, "where": '{"optionIdx":1}'},
        "listAfter": {"parent": "site:1", "seq": 0},
        "read": {"id": row},
        "search": {"parent": "site:1", "query": "yes"},
        "indexed": {"parent": "site:1", "indexBy": "optionIdx"},
        "counts": {"parent": "site:1", "by": "optionIdx"},
        "history": {"id": row},
    }
    for variant in ("auth", "pub"):
        for op, parts in query.items():
            assert ask(bed, "GET", f"{vote}/{variant}/{op}", query=parts).status_code == 200
    item = {"payload": {"optionIdx": 2}, "idempotencyKey": "document"}
    for op, body in (
        ("append", {"parent": "site:1", **item}),
        ("append", {"parent": "site:1", **item}),
        ("appendBulk", {"parent": "site:1", "items": [item, {"payload": {"optionIdx": 3}}]}),
        ("appendBulk", {"parent": "site:1", "items": [{"optionIdx": 2, "idempotencyKey": "flat"}, {"optionIdx": 3}]}),
        ("update", {"id": row, "patch": {"comment": "edited"}}),
        ("rm", {"id": row}),
        ("restore", {"id": row}),
        ("rmBulk", {"ids": [row, "site:1:99"]}),
        ("restoreByParent", {"parent": "site:1"}),
        ("purgeByParent", {"parent": "site:1"}),
    ):
        assert ask(bed, "POST", f"{vote}/{op}", body=body, media_type="application/json").status_code == 200


def test_a_row_too_many_is_refused_as_the_document_says(bed: Bed) -> None:
    parts = {"body": {"parent": "desk", "payload": {"at": 1}}, "media_type": "application/json"}
    statuses = [ask(bed, "POST", "/tables/limited/append", **parts).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]


# --- the document itself -------------------------------------------------------------------------------------------


def test_there_is_an_operation_for_everything_that_a_table_has(bed: Bed) -> None:
    paths = {path for path in bed.document["paths"] if path.startswith("/tables/")}
    expected = {write_path(name, op) for name, table in TABLES.items() for op in writes_of(table)}
    expected |= {path for table in TABLES.values() for path, _, _ in read_paths(table)}
    expected |= {write_path(name, SCHEMA) for name in TABLES}
    expected |= set(TYPES)
    assert paths == expected
    assert "/tables/vote/restore" in paths
    assert "/tables/note/restore" not in paths
    assert "/tables/note/pub/list" not in paths
    assert "/tables/message/pub/search" not in paths


def test_a_request_is_described_by_the_tables_own_schema(bed: Bed) -> None:
    schemas = bed.document["components"]["schemas"]
    assert schemas["tables.vote.payload"] == TABLES["vote"].schema.document
    body = bed.document["paths"]["/tables/vote/append"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/tables.vote.AppendBody"}
    payload = schemas["tables.vote.AppendBody"]["properties"]["payload"]
    assert payload == {"$ref": "#/components/schemas/tables.vote.payload"}
    row = schemas["tables.vote.row"]["properties"]
    assert row["optionIdx"] == TABLES["vote"].schema.document["properties"]["optionIdx"]
    assert {"id", "seq", "createdAt", "author", "own"} <= set(row)
    assert "author" not in schemas["tables.message.row"]["properties"]


def test_references_of_a_tables_schema_lead_into_the_document() -> None:
    """What msgspec makes of a Struct has a reference at its root."""
    described = describe([TABLES["message"]])
    document = {
        "components": {"schemas": dict(described.schemas)},
        "$ref": "#/components/schemas/tables.message.payload",
    }
    validator = jsonschema_rs.validator_for(document)
    assert validator.is_valid({"content": "hi"})
    assert not validator.is_valid({"content": 7})
    assert set(described.schemas["tables.message.row"]["properties"]) >= {"content", "stamped"}
