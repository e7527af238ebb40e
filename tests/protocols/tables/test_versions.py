"""Schemas that change between two starts of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.server_process import ServerProcess, StartServer
from support.tables_client import TablesClient

HEAD = """
import msgspec
from strandline.tables import make_log

class Note(msgspec.Struct):
    {fields}

note = make_log("note", parent="desk", schema=Note, pub=True, soft_delete=True, search="{search}", lenses={lenses})
"""
FIRST = HEAD.format(fields="text: str", search="text", lenses=None)
WITH_DEFAULT = HEAD.format(fields="text: str; mood: str = 'calm'", search="text", lenses=None)
RENAME = [{"op": "rename", "from": "/text", "to": "/body"}]
RENAMED = HEAD.format(fields="body: str; mood: str = 'calm'", search="body", lenses={2: RENAME})
WITHOUT_DEFAULT = HEAD.format(fields="text: str; mood: str", search="text", lenses=None)


class Evolving:
    """A server whose declarations are replaced."""

    def __init__(self, start: StartServer, place: Path, lane: str) -> None:
        self.place = place
        place.write_text(FIRST)
        self.server: ServerProcess = start(declare=place, lane=lane)

    def declare(self, text: str) -> None:
        self.server.stop()
        self.place.write_text(text)
        self.server.start()

    def client(self, user: str = "ann") -> TablesClient:
        return TablesClient(self.server.url, user)


@pytest.fixture(params=["fast", "asgi"])
def evolving(request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path) -> Evolving:
    return Evolving(start_server, tmp_path / "notes.py", request.param)


def shown(row: Any) -> dict[str, Any]:
    return {name: row[name] for name in ("text", "body", "mood") if name in row}


def test_every_read_shows_old_rows_in_the_current_version(evolving: Evolving) -> None:
    ann = evolving.client()
    ann.append("note", "d", {"text": "one"})
    ann.append("note", "d", {"text": "two"})
    evolving.declare(WITH_DEFAULT)
    ann = evolving.client()
    ann.append("note", "d", {"text": "three", "mood": "wild"})
    ann.write("note", "update", id="d:1", patch={"mood": "glad"})
    evolving.declare(RENAMED)
    ann = evolving.client()
    ann.append("note", "d", {"body": "four"})
    rows = [
        {"body": "one", "mood": "glad"},
        {"body": "two", "mood": "calm"},
        {"body": "three", "mood": "wild"},
        {"body": "four", "mood": "calm"},
    ]
    for variant in ("auth", "pub"):
        page = ann.read("note", "list", variant=variant, parent="d")["page"]
        assert list(map(shown, page)) == rows[::-1]
        assert not any("$version" in row for row in page)
        assert list(map(shown, ann.read("note", "listAfter", variant=variant, parent="d"))) == rows
        assert shown(ann.read("note", "read", variant=variant, id="d:2")) == rows[1]
        assert ann.read("note", "counts", variant=variant, parent="d", by="mood")["counts"] == {
            "glad": 1, "calm": 2, "wild": 1,
        }  # fmt: skip
        assert list(map(shown, ann.read("note", "search", variant=variant, parent="d", query="one"))) == rows[:1]
    with ann.events("/tables/note/pub/live?parent=d") as events:
        seen = [events.next() for _ in range(6)]
        assert [(event.event, shown(event.json)) for event in seen[:5]] == [
            ("append", rows[0]),
            ("append", rows[1]),
            ("append", rows[2]),
            ("update", rows[0]),
            ("append", rows[3]),
        ]
        assert seen[5].event == "ready"
        assert shown(ann.write("note", "update", id="d:2", patch={"mood": "odd"})) == {"body": "two", "mood": "odd"}
        assert shown(events.next().json) == {"body": "two", "mood": "odd"}


def test_the_versions_of_a_schema_can_be_read(evolving: Evolving) -> None:
    evolving.client().append("note", "d", {"text": "one"})
    evolving.declare(WITH_DEFAULT)
    evolving.declare(RENAMED)
    answer = evolving.client().call("GET", "/tables/note/schema")
    assert (answer["table"], answer["version"]) == ("note", 3)
    assert [each["version"] for each in answer["versions"]] == [1, 2, 3]
    assert [None if each["lens"] is None else each["lens"]["ops"] for each in answer["versions"]] == [
        None, None, RENAME,
    ]  # fmt: skip
    assert answer["versions"][0]["schema"]["$defs"]["Note"]["required"] == ["text"]
    # The log of the versions belongs to the server.
    assert evolving.server.client().call("DELETE", "/v0/topics/_table_schemas")["deleted"] is False
    assert evolving.client().call("GET", "/tables/note/schema") == answer


def test_a_server_does_not_start_with_a_schema_that_old_rows_do_not_fit(evolving: Evolving) -> None:
    evolving.client().append("note", "d", {"text": "one"})
    server = evolving.server
    server.stop()
    place = evolving.place
    place.write_text(WITHOUT_DEFAULT)
    server.launch()
    assert server.wait() == 1
    assert "field 'mood' is required and has no default" in server.log()
    assert "make_log('note', ..., lenses={1: [operations]})" in server.log()
    assert "Traceback" not in server.log()
    place.write_text(FIRST)
    server.start()
    assert evolving.client().read("note", "read", id="d:1")["text"] == "one"
