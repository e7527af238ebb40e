"""Which operation of which protocol works on which kind of log; ``docs/reference/logs-and-protocols.md`` has the table.

Reading works on every log that the protocol can show, changing only through the protocol that owns the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from support.log_matrix import (
    KINDS,
    OPERATIONS,
    OWNED,
    SIDE_KINDS,
    YES,
    MatrixServer,
    Operation,
    make_table,
    side_cell,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixServer]:
    server = MatrixServer(tmp_path_factory.mktemp("matrix")).start()
    yield server
    server.end()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.protocol}: {each.title}")
def test_a_cell_of_the_table_says_what_happens(server: MatrixServer, operation: Operation, kind: str) -> None:
    check(server, operation, KINDS[kind](server), operation.cells.get(kind, YES), kind in OWNED)


@pytest.mark.parametrize("kind", SIDE_KINDS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.protocol}: {each.title}")
def test_the_other_logs_of_a_table_are_its_own_too(server: MatrixServer, operation: Operation, kind: str) -> None:
    check(server, operation, SIDE_KINDS[kind](server), side_cell(operation), True)


def check(server: MatrixServer, operation: Operation, name: str, expected: str, is_owned: bool) -> None:
    before = server.content(name)
    cell, message = operation.run(server, name)
    assert cell == expected, message
    if cell != YES and operation.changes:
        assert server.content(name) == before
        if is_owned and any(code in cell for code in ("not_writable", "conflict")):
            assert "of a table" in message or "of a collection" in message, "the message names the owner"


def test_a_table_and_its_stream_are_searched_with_one_index(server: MatrixServer) -> None:
    name = make_table(server)

    def indexed() -> int:
        (family,) = server.send("GET", f"/v1/stream/{quote(name)}/_index_status").json()["search_families"]
        return int(family["bytes_at_rest"])

    assert indexed() == 0
    parent = quote(name.partition("/")[2])
    found = server.send("GET", f"/tables/item/auth/search?parent={parent}&query=lamp").json()
    assert [row["text"] for row in found] == ["blue lamp", "red lamp"]
    before = indexed()
    assert before > 0
    server.send("GET", f"/v1/stream/{quote(name)}/_search?q=lamp")
    assert indexed() == before


def test_a_fork_shares_the_rows_of_a_table(server: MatrixServer) -> None:
    name = make_table(server)
    parent = name.partition("/")[2]
    copy = "/v1/stream/fork/of-rows"
    made = server.client.http.put(copy, headers={"stream-forked-from": f"/v1/stream/{quote(name)}"})
    assert made.status_code == 201

    def texts() -> list[str]:
        return [row["text"] for row in server.send("GET", f"{copy}?offset=-1").json()]

    server.send("POST", copy, [{"text": "own"}])
    server.send("POST", "/tables/item/update", {"id": f"{parent}:2", "patch": {"text": "white lamp"}})
    server.send("POST", "/tables/item/rm", {"id": f"{parent}:1"})
    assert texts() == ["white lamp", "own"]
    server.send("POST", "/tables/item/restore", {"id": f"{parent}:1"})
    server.send("POST", "/tables/item/rm", {"id": f"{parent}:2", "hard": True})
    assert texts() == ["red lamp", "own"]
    rows = server.send("GET", f"/tables/item/auth/list?parent={quote(parent)}").json()["page"]
    assert [row["text"] for row in rows] == ["red lamp"], "the fork's own records are not rows"
