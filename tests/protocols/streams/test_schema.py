"""The registry of a stream over HTTP: GET and POST /v1/stream/{name}/_schema."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.schema_builders import INTEGER, STRING, lens_document, object_of, op
from support.server_process import StartServer
from support.streams_client import JSON, TEXT, StreamsClient

KEY = {"jsonPointer": "/a", "required": True}


def show(streams: StreamsClient, name: str) -> dict[str, Any]:
    response = streams.request("GET", f"{name}/_schema")
    assert response.status_code == 200
    document: dict[str, Any] = response.json()
    return document


def update(streams: StreamsClient, name: str, **body: Any) -> dict[str, Any]:
    response = streams.request("POST", f"{name}/_schema", body)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def rename(name: str, source: int = 1, *, old: str = "/a", new: str = "/b") -> dict[str, Any]:
    return lens_document(op("rename", from_=old, to=new), source=source, schema=name)


def test_a_stream_without_a_registry_answers_a_default_one(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    assert show(streams, name) == {
        "apiVersion": "durable.streams/schema-registry/v1",
        "schema": name,
        "currentVersion": 0,
        "boundaries": [],
        "schemas": {},
        "lenses": {},
    }


def test_a_stream_that_is_not_there_has_no_registry(streams: StreamsClient, name: str) -> None:
    streams.refused(404, "GET", f"{name}/_schema", code="not_found")
    streams.refused(404, "POST", f"{name}/_schema", {"schema": {}}, code="not_found")


def test_an_update_answers_the_new_registry(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    answer = update(streams, name, schema=object_of(a=STRING), routingKey=KEY)
    assert answer["currentVersion"] == 1
    assert answer["boundaries"] == [{"offset": 0, "version": 1}]
    assert answer["routingKey"] == KEY
    assert "search" not in answer
    assert show(streams, name) == answer


def test_a_bad_update_changes_nothing(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    before = update(streams, name, schema=object_of(a=STRING))
    path = f"{name}/_schema"
    assert streams.refused(400, "POST", path, b"{", code="bad_request") == "schema update must be valid JSON"
    assert streams.refused(400, "POST", path, {"schemas": {}}) == (
        "schemaUpdate.schemas is not supported; did you mean 'schema'?"
    )
    assert streams.refused(400, "POST", path, {"schema": {"$ref": "#"}}) == "external $ref is not supported"
    assert streams.refused(400, "POST", path, {"schema": object_of(b=STRING)}) == "lens required"
    stale = {"schema": object_of(b=STRING), "lens": rename(name, 4)}
    assert streams.refused(409, "POST", path, stale, code="conflict") == "lens version mismatch"
    unproven = {"schema": object_of(b=INTEGER), "lens": rename(name)}
    assert streams.refused(400, "POST", path, unproven) == "rename schema incompatible"
    assert show(streams, name) == before


def test_the_first_schema_needs_an_empty_stream(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, {"a": "x"})
    message = streams.refused(400, "POST", f"{name}/_schema", {"schema": {}})
    assert message == "first schema requires empty stream"
    assert update(streams, name, routingKey=KEY)["routingKey"] == KEY


def test_appends_are_held_against_the_schema(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    streams.append(name, [{"a": "x"}, {"a": "y"}])
    headers = {"content-type": JSON}
    message = streams.refused(400, "POST", name, [{"a": "z"}, {"a": 1}, {"a": 2}], headers=headers)
    assert message == 'element 1: /a value is not of type "string"'
    assert streams.values(name) == [{"a": "x"}, {"a": "y"}]


def test_a_stream_with_a_schema_takes_json_only(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, schema=True)
    response = streams.request("POST", name, "text", headers={"content-type": TEXT})
    assert response.status_code in (400, 409)
    assert streams.values(name) == []


def test_keys_come_from_the_records(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, routingKey=KEY)
    streams.append(name, [{"a": "x", "n": 1}, {"a": "y", "n": 2}])
    assert streams.values(name, key="y") == [{"a": "y", "n": 2}]
    headers = {"content-type": JSON}
    assert streams.refused(400, "POST", name, [{"a": "x"}, {}], headers=headers) == "routing key missing"
    assert streams.refused(400, "POST", name, {"a": 5}, headers=headers) == "routing key must be a string"
    message = streams.refused(400, "POST", name, {"a": "x"}, headers=headers | {"stream-key": "k"})
    assert message == "Stream-Key not allowed when routingKey is configured"


def test_old_records_are_read_as_the_current_version(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    streams.append(name, [{"a": "x"}, {"a": "y"}])
    answer = update(streams, name, schema=object_of(b=STRING), lens=rename(name))
    assert answer["boundaries"] == [{"offset": 0, "version": 1}, {"offset": 2, "version": 2}]
    streams.append(name, {"b": "z", "big": 123456789012345678901234567890})
    assert streams.values(name) == [{"b": "x"}, {"b": "y"}, {"b": "z", "big": 123456789012345678901234567890}]


@pytest.mark.parametrize("default", [None, 0, False, ""])
def test_falsy_defaults_reach_old_records(streams: StreamsClient, name: str, default: Any) -> None:
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    streams.append(name, {"a": "x"})
    add = lens_document(op("add", path="/n", schema={}, default=default), schema=name)
    assert update(streams, name, schema=object_of(a=STRING, n={}), lens=add)["lenses"]["1"] == add
    assert streams.values(name) == [{"a": "x", "n": default}]


def test_a_stream_that_is_made_anew_has_none_of_the_old_lenses(streams: StreamsClient, name: str) -> None:
    for new in ("b", "c"):
        streams.create(name)
        assert show(streams, name)["currentVersion"] == 0
        update(streams, name, schema=object_of(a=STRING))
        streams.append(name, {"a": "x"})
        update(streams, name, schema=object_of(**{new: STRING}), lens=rename(name, new=f"/{new}"))
        assert streams.values(name) == [{new: "x"}]
        assert streams.request("DELETE", name).status_code == 204


def test_a_registry_survives_a_kill(start_server: StartServer, name: str) -> None:
    server = start_server()
    streams = StreamsClient(server.url)
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    streams.append(name, {"a": "x"})
    shown = update(streams, name, schema=object_of(b=STRING), lens=rename(name))
    streams.close()
    server.kill()
    server.start()
    streams = StreamsClient(server.url)
    assert show(streams, name) == shown
    assert streams.values(name) == [{"b": "x"}]
    streams.close()


def test_of_updates_at_the_same_time_one_wins(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    body = {"schema": object_of(b=STRING), "lens": rename(name)}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: streams.request("POST", f"{name}/_schema", body).status_code, range(8)))
    assert sorted(answers) == [200] + [409] * 7
    assert show(streams, name)["currentVersion"] == 2


def test_records_that_are_appended_meanwhile_keep_the_version_they_were_checked_against(
    streams: StreamsClient, name: str
) -> None:
    """Whatever comes first, every record reads as one of the current version in the end."""
    streams.create(name)
    update(streams, name, schema=object_of({"b": STRING}, a=STRING))

    def append(number: int) -> int:
        body = {"a": str(number), "b": str(number)}
        return streams.request("POST", name, body, headers={"content-type": JSON}).status_code

    with ThreadPoolExecutor(4) as pool:
        appended = [pool.submit(append, number) for number in range(40)]
        lens = lens_document(op("copy", from_="/a", to="/c"), schema=name)
        changed = pool.submit(update, streams, name, schema=object_of({"b": STRING, "c": STRING}, a=STRING), lens=lens)
        assert {each.result() for each in appended} == {204}
    boundary = changed.result()["boundaries"][-1]["offset"]
    values = streams.values(name)
    assert len(values) == 40
    assert ["c" in value for value in values] == [True] * boundary + [False] * (40 - boundary)


def test_a_registry_too_large_to_keep_is_refused(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    large = {"schema": {"enum": ["x" * 1000] * 1200}}
    assert "larger than" in streams.refused(400, "POST", f"{name}/_schema", large)
    assert show(streams, name)["currentVersion"] == 0


@pytest.mark.both_lanes
def test_an_added_member_gets_the_default_of_the_new_schema(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    streams.append(name, [{"a": "x"}])
    new = object_of(a=STRING, b={"type": "integer", "default": 7}, c={"type": ["object", "null"]})
    added = [op("add", path="/b", schema=INTEGER), op("add", path="/c", schema={})]
    answer = update(streams, name, schema=new, lens=lens_document(*added, schema=name))
    assert [each["default"] for each in answer["lenses"]["1"]["ops"]] == [7, {}]
    assert streams.values(name) == [{"a": "x", "b": 7, "c": {}}]


def test_the_default_of_the_lens_comes_first(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    streams.append(name, [{"a": "x"}])
    new = object_of(a=STRING, b={"type": "integer", "default": 7})
    update(streams, name, schema=new, lens=lens_document(op("add", path="/b", schema=INTEGER, default=0), schema=name))
    assert streams.values(name) == [{"a": "x", "b": 0}]


def test_defaults_of_nested_members_are_found_in_the_new_schema(streams: StreamsClient, name: str) -> None:
    def schema(**members: Any) -> dict[str, Any]:
        inner = object_of(**members)
        return object_of(one=inner, many={"type": "array", "items": inner})

    streams.create(name)
    update(streams, name, schema=schema(a=STRING))
    streams.append(name, [{"one": {"a": "x"}, "many": [{"a": "y"}]}])
    added = op("add", path="/b", schema=INTEGER)
    lens = lens_document(op("in", path="/one", ops=[added]), op("map", path="/many", ops=[added]), schema=name)
    update(streams, name, schema=schema(a=STRING, b={"type": "integer", "default": 7}), lens=lens)
    assert streams.values(name) == [{"one": {"a": "x", "b": 7}, "many": [{"a": "y", "b": 7}]}]


def test_an_added_member_without_any_default_is_refused(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    update(streams, name, schema=object_of(a=STRING))
    lens = lens_document(op("add", path="/b", schema=INTEGER), schema=name)
    message = streams.refused(400, "POST", f"{name}/_schema", {"schema": object_of(a=STRING, b=INTEGER), "lens": lens})
    assert "add missing default" in message
