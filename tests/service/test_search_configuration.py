"""The search configuration of a log: installed through topics or streams, at any time, and used by all protocols."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from service.test_ownership import OWNED
from service.test_ownership import client as owned  # noqa: F401
from support.arrow_client import ARROW, encode, table
from support.server_process import StartServer
from support.topics_client import Client, eventually


def field(name: str, kind: str = "keyword", **flags: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}], "exact": True, **flags}


ITEM = {"fields": {"item": field("item", prefix=True)}}
AMOUNT = {"fields": {"amount": field("amount", "integer", column=True, sortable=True)}}
BAD: dict[str, Any] = {"fields": {"item": {"kind": "word", "bindings": []}}}

Install = Callable[[Client, str, Any], httpx.Response]


def by_streams(client: Client, name: str, search: Any) -> httpx.Response:
    return client.request("POST", f"/v1/stream/{name}/_schema", {"search": search})


def by_topics(client: Client, name: str, search: Any) -> httpx.Response:
    return client.request("PUT", f"/v0/topics/{name.replace('/', '%2F')}", {"search": search})


PROTOCOLS: dict[str, Install] = {"streams": by_streams, "topics": by_topics}
each_protocol = pytest.mark.parametrize("install", PROTOCOLS.values(), ids=list(PROTOCOLS))


def found(client: Client, name: str, q: str) -> list[Any]:
    answer = client.call("POST", f"/v1/stream/{name}/_search", {"q": q, "sort": ["offset:asc"]})
    return [hit["source"] for hit in answer["hits"]]


def installed(client: Client, name: str) -> Any:
    """The configuration, which both protocols show alike."""
    registry = client.call("GET", f"/v1/stream/{name}/_schema")
    assert client.get(name)["config"].get("search") == registry.get("search")
    return registry.get("search")


@pytest.fixture
def log(client: Client, topic: str) -> str:
    """A log with records and without a schema."""
    client.write(topic, [{"item": "book", "amount": 12}, {"item": "pen", "amount": 3}])
    return topic


@each_protocol
def test_a_log_with_records_becomes_searchable(client: Client, log: str, install: Install) -> None:
    assert installed(client, log) is None
    client.refused("POST", f"/v1/stream/{log}/_search", {"q": "item:book"}, status=400)
    assert install(client, log, ITEM).is_success
    assert installed(client, log) == ITEM
    assert found(client, log, "item:b*") == [{"item": "book", "amount": 12}]
    client.call("POST", f"/v1/stream/{log}", {"item": "bag"}, status=204)
    assert found(client, log, "item:b*") == [{"item": "book", "amount": 12}, {"item": "bag"}]
    page = client.call("GET", f"/v1/stream/{log}?format=json&filter=item:pen")
    assert page == [{"item": "pen", "amount": 3}]


@each_protocol
def test_every_protocol_still_appends_to_it(client: Client, log: str, install: Install) -> None:
    assert install(client, log, ITEM).is_success
    client.write(log, [{"item": "bag"}])
    client.call("POST", "/v0/write", {"writes": [{"topic": log, "records": [{"data": {"item": "bed"}}]}]})
    client.call("POST", f"/v1/stream/{log}", {"item": "box"}, status=204)
    rows = client.http.post(
        f"/arrow/records/{log}", content=encode(table({"item": "bat"})), headers={"content-type": ARROW}
    )
    assert rows.is_success, rows.text
    assert [hit["item"] for hit in found(client, log, "item:b*")] == ["book", "bag", "bed", "box", "bat"]


@each_protocol
def test_a_configuration_is_replaced_and_removed(client: Client, log: str, install: Install) -> None:
    assert install(client, log, ITEM).is_success
    assert install(client, log, AMOUNT).is_success
    assert installed(client, log) == AMOUNT
    assert found(client, log, "amount:>5") == [{"item": "book", "amount": 12}]
    client.refused("POST", f"/v1/stream/{log}/_search", {"q": "item:pen"}, status=400)
    assert install(client, log, None).is_success
    assert installed(client, log) is None
    assert client.call("GET", f"/arrow/logs/{log}")["registry"] is None
    client.refused("POST", f"/v1/stream/{log}/_search", {"q": "amount:1"}, status=400)


@each_protocol
def test_a_bad_configuration_changes_nothing(client: Client, log: str, install: Install) -> None:
    message = "search.fields.item.kind must be keyword, text, integer, float, date, or bool"
    for before in (None, ITEM):
        assert install(client, log, before).is_success
        refused = install(client, log, BAD)
        assert (refused.status_code, refused.json()["error"]["message"]) == (400, message)
        assert installed(client, log) == before
    large = {"fields": {f"f{number}": field(f"f{number}") for number in range(6_000)}}
    assert install(client, log, large).status_code == 400
    assert installed(client, log) == ITEM


@each_protocol
def test_a_schema_stays_as_it_is(client: Client, topic: str, install: Install) -> None:
    client.call("PUT", f"/v1/stream/{topic}", status=201, headers={"content-type": "application/json"})
    schema = {"type": "object", "properties": {"item": {"type": "string"}}}
    client.call("POST", f"/v1/stream/{topic}/_schema", {"schema": schema})
    client.call("POST", f"/v1/stream/{topic}", {"item": "book"}, status=204)
    assert install(client, topic, ITEM).is_success
    assert client.call("GET", f"/v1/stream/{topic}/_schema")["schemas"] == {"1": schema}
    client.refused("POST", f"/v1/stream/{topic}", {"item": 1}, status=400)
    client.refused("POST", f"/v0/topics/{topic}", {"records": [{"data": {"item": 1}}]}, status=409)
    assert found(client, topic, "item:book") == [{"item": "book"}]
    assert install(client, topic, None).is_success
    assert client.call("GET", f"/v1/stream/{topic}/_schema")["schemas"] == {"1": schema}


@each_protocol
def test_a_first_schema_still_needs_an_empty_log(client: Client, log: str, install: Install) -> None:
    assert install(client, log, ITEM).is_success
    refused = client.refused("POST", f"/v1/stream/{log}/_schema", {"schema": {}}, status=400)
    assert refused["message"] == "first schema requires empty stream"
    assert installed(client, log) == ITEM


@each_protocol
def test_an_empty_log_takes_a_schema_after_its_search_configuration(
    client: Client, topic: str, install: Install
) -> None:
    client.put(topic)
    assert install(client, topic, ITEM).is_success
    client.call("POST", f"/v1/stream/{topic}/_schema", {"schema": {"type": "object"}})
    client.call("POST", f"/v1/stream/{topic}", {"item": "book"}, status=204)
    assert installed(client, topic) == ITEM
    assert found(client, topic, "item:book") == [{"item": "book"}]


@each_protocol
def test_records_that_are_not_objects_are_left_out(client: Client, log: str, install: Install) -> None:
    client.write(log, [1, "item", ["book"], None])
    assert install(client, log, ITEM).is_success
    assert len(found(client, log, "has:item")) == 2


@each_protocol
def test_two_at_once_leave_one_valid_configuration(client: Client, log: str, install: Install) -> None:
    wanted = [{"fields": {f"f{number}": field("item")}} for number in range(12)]
    others = [by_topics if install is by_streams else by_streams, install]

    def put(number: int) -> httpx.Response:
        own = Client(client.url)
        try:
            return others[number % 2](own, log, wanted[number])
        finally:
            own.close()

    with ThreadPoolExecutor(6) as pool:
        assert all(answer.is_success for answer in pool.map(put, range(len(wanted))))
    left = installed(client, log)
    assert left in wanted
    (name,) = left["fields"]
    assert len(found(client, log, f"{name}:book")) == 1


@pytest.mark.parametrize("name", OWNED.values(), ids=list(OWNED))
@each_protocol
def test_only_its_owner_makes_an_owned_log_searchable(owned: Client, name: str, install: Install) -> None:  # noqa: F811
    before = owned.call("GET", f"/v1/stream/{name}/_schema")
    refused = install(owned, name, ITEM)
    assert refused.status_code == 409, refused.text
    assert refused.json()["error"]["code"] == ("not_writable" if install is by_topics else "conflict")
    assert owned.call("GET", f"/v1/stream/{name}/_schema") == before


@each_protocol
def test_text_is_not_searchable(client: Client, topic: str, install: Install) -> None:
    client.call("PUT", f"/v1/stream/{topic}", "words", status=201, headers={"content-type": "text/plain"})
    refused = install(client, topic, ITEM)
    assert refused.status_code == (409 if install is by_topics else 400)
    assert "search" not in client.call("GET", f"/v1/stream/{topic}/_schema")


@each_protocol
def test_a_configuration_survives_a_kill(start_server: StartServer, install: Install) -> None:
    process = start_server()
    client = process.client()
    client.write("orders", [{"item": "book"}])
    client.put("safe", durability="fsync")
    assert install(client, "orders", ITEM).is_success
    assert install(client, "safe", ITEM).is_success
    process.kill()
    client = process.start().client()
    assert found(client, "orders", "item:book") == [{"item": "book"}]
    assert installed(client, "safe") == ITEM
    client.write("orders", [{"item": "bag"}])
    assert len(found(client, "orders", "item:b*")) == 2


# --- topics ---------------------------------------------------------------------------------------------------------


def test_a_topic_is_created_with_a_search_configuration(client: Client, topic: str) -> None:
    answer = client.put(topic, status=201, search=ITEM, cap_records=5)
    assert answer["config"]["search"] == ITEM
    client.write(topic, [{"item": "book"}])
    assert found(client, topic, "item:book") == [{"item": "book"}]


def test_a_write_creates_a_topic_with_a_search_configuration(client: Client, topic: str) -> None:
    client.write(topic, [{"item": "book"}], config={"search": ITEM})
    assert found(client, topic, "item:book") == [{"item": "book"}]
    other = {"topic": f"{topic}-too", "records": [{"data": {"item": "pen"}}], "config": {"search": ITEM}}
    client.call("POST", "/v0/write", {"writes": [other]}, status=201)
    assert found(client, f"{topic}-too", "item:pen") == [{"item": "pen"}]


def test_a_topic_is_not_created_with_a_bad_configuration(client: Client, topic: str) -> None:
    for path, body in (
        (f"/v0/topics/{topic}", {"records": [{"data": 1}], "config": {"search": BAD}}),
        ("/v0/write", {"writes": [{"topic": topic, "records": [{"data": 1}], "config": {"search": BAD}}]}),
    ):
        assert "search.fields.item.kind" in client.refused("POST", path, body, status=400)["message"]
    assert by_topics(client, topic, BAD).status_code == 400
    client.refused("GET", f"/v0/topics/{topic}", status=404)


def test_a_configuration_without_search_keeps_it(client: Client, log: str) -> None:
    assert by_streams(client, log, ITEM).is_success
    assert client.put(log, cap_records=100)["config"]["search"] == ITEM
    assert client.put(log)["config"]["search"] == ITEM
    changed = client.put(log, search=AMOUNT, cap_records=7)["config"]
    assert (changed["search"], changed["cap_records"]) == (AMOUNT, 7)


def test_a_bad_configuration_changes_no_other_member(client: Client, log: str) -> None:
    client.refused("PUT", f"/v0/topics/{log}", {"search": BAD, "cap_records": 7}, status=400)
    assert client.get(log)["config"]["cap_records"] == 0
    large = {"fields": {f"f{number}": field("x" * 400) for number in range(3_000)}}
    client.refused("PUT", f"/v0/topics/{log}", {"search": large, "cap_records": 7}, status=400)
    assert client.get(log)["config"]["cap_records"] == 0


def test_jobs_of_a_queue_are_found_until_they_are_acknowledged(client: Client, topic: str) -> None:
    client.queue(topic, [{"item": "book"}, {"item": "pen"}])
    assert client.put(topic, type="queue", search=ITEM)["config"]["search"] == ITEM
    assert found(client, topic, "has:item") == [{"item": "book"}, {"item": "pen"}]
    (job,) = client.claim(topic, max=1)
    client.ack(topic, [job["$seq"]])
    assert found(client, topic, "has:item") == [{"item": "pen"}]


def test_a_router_copies_into_a_searchable_log(client: Client, log: str, topic: str) -> None:
    dest = f"{topic}-dest"
    client.put(dest, search=ITEM)
    client.call("PUT", f"/v0/routers/{dest}", {"source": log, "dest": dest}, status=201)
    client.write(log, [{"item": "bag"}])
    eventually(lambda: found(client, dest, "item:bag") == [{"item": "bag"}] or None)


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_fork_keeps_the_search_configuration(client: Client, log: str) -> None:
    assert by_topics(client, log, ITEM).is_success
    fork = f"{log}-fork"
    client.call("PUT", f"/v1/stream/{fork}", status=201, headers={"stream-forked-from": f"/v1/stream/{log}"})
    client.write(fork, [{"item": "bag"}])
    assert [hit["item"] for hit in found(client, fork, "item:b*")] == ["book", "bag"]
    assert [hit["item"] for hit in found(client, log, "item:b*")] == ["book"]


def test_a_routing_key_still_closes_a_log_to_topics(client: Client, log: str) -> None:
    assert by_streams(client, log, ITEM).is_success
    client.call("POST", f"/v1/stream/{log}/_schema", {"routingKey": {"jsonPointer": "/item", "required": True}})
    client.refused("POST", f"/v0/topics/{log}", {"records": [{"data": {"item": "x"}}]}, status=409)
    client.call("POST", f"/v1/stream/{log}/_schema", {"routingKey": None})
    client.write(log, [{"item": "x"}])
    assert installed(client, log) == ITEM
