"""An unknown member of a configuration is refused with the nearest valid name, by every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from support.server_process import ServerProcess

from strandline.nearest_name import decode_body, nearest_name
from strandline.service.log_config import TopicConfig

RECORDS = [{"data": 1}]
SUBSCRIPTION = {"type": "pull-wake", "pattern": "a/*", "wake_stream": "wake"}
AT = {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}]}
LENS = {
    "apiVersion": "durable.lens/v1", "schema": "s", "from": 0, "to": 1,
    "ops": [{"op": "wrap", "path": "/a", "mode": "singleton"}],
}  # fmt: skip
TEMPLATE = {"entity": "e", "fields": [{"name": "a", "encoding": "string"}]}
SEARCH = {"primaryTimestampField": "at", "fields": {"at": AT}}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    declared = tmp_path_factory.mktemp("declared") / "notes.py"
    declared.write_text(
        "from strandline.tables import make_log\n"
        'note = make_log("note", parent="board", schema={"type": "object"}, pub=True)\n'
        'def identify(headers): return "me"\n'
    )
    process = ServerProcess(declared.parent / "data", settings={"declare": declared}).start()
    with httpx.Client(base_url=process.url, trust_env=False, timeout=30) as client:
        client.put("/v0/topics/kept").raise_for_status()
        client.put("/v1/stream/s", headers={"content-type": "application/json"}).raise_for_status()
        client.put("/v1/stream/touched", headers={"content-type": "application/json"}).raise_for_status()
        touch = {"profile": {"kind": "state-protocol", "touch": {"enabled": True}}}
        client.post("/v1/stream/touched/_profile", json=touch).raise_for_status()
        yield client
    process.end()


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("PUT", "/v0/topics/t", {"durabilty": "fsync"}, "unknown member 'durabilty'; did you mean 'durability'?"),
        ("PUT", "/v0/topics/t", {"maxDeliveries": 1}, "unknown member 'maxDeliveries'; did you mean 'max_deliveries'?"),
        ("PUT", "/v0/topics/t", {"xyzzy": 1}, "unknown member 'xyzzy'"),
        ("PUT", "/v0/topics/t", {"type": "queu"}, "invalid value 'queu' in type: expected log, queue"),
        ("PUT", "/v0/topics/t", {"discard": "x" * 99}, f"invalid value '{'x' * 63}… in discard: expected old, reject"),
        (
            "POST", "/v0/topics/t", {"records": RECORDS, "config": {"durability": "disc"}},
            "invalid value 'disc' in config.durability: expected ephemeral, memory, disk, fsync",
        ),
        # A misspelt filter would remove or move more than the caller meant.
        (
            "POST", "/v0/topics/kept/delete", {"before_seq": 9, "mach": ["a"]},
            "unknown member 'mach'; did you mean 'match'?",
        ),
        ("POST", "/v0/topics/kept/redrive", {"limits": 1}, "unknown member 'limits'; did you mean 'limit'?"),
        (
            "POST", "/v0/topics/t", {"records": RECORDS, "config": {"durabilty": "fsync"}},
            "unknown member 'durabilty' in config; did you mean 'durability'?",
        ),
        (
            "POST", "/v0/write", {"writes": [{"topic": "t", "records": RECORDS, "config": {"cap_record": 1}}]},
            "unknown member 'cap_record' in writes[0].config; did you mean 'cap_records'?",
        ),
        (
            "PUT", "/v0/routers/r", {"source": "t", "dest": "u", "presrve_tag": False},
            "unknown member 'presrve_tag'; did you mean 'preserve_tag'?",
        ),
        (
            "PUT", "/v0/topics/kept/consumers/c", {"seq": 0, "sec": 1},
            "unknown member 'sec'; did you mean 'seq'?",
        ),
        (
            "POST", "/v0/topics/kept/groups/g", {"node": "n", "lease": 1000},
            "unknown member 'lease'; did you mean 'lease_ms'?",
        ),
        (
            "POST", "/v0/watch", {"topics": {"kept": {}}, "include_tag": True},
            "unknown member 'include_tag'; did you mean 'include_tags'?",
        ),
        (
            "POST", "/v0/watch", {"topics": {"kept": {"from": 1}}},
            "unknown member 'from' in topics[...]; did you mean 'from_seq'?",
        ),
        (
            "PUT", "/v1/stream/__ds/subscriptions/w", {**SUBSCRIPTION, "lease_ttl": 1000},
            "unknown member 'lease_ttl'; did you mean 'lease_ttl_ms'?",
        ),
        (
            "POST", "/v1/stream/s/_schema", {"serach": SEARCH},
            "schemaUpdate.serach is not supported; did you mean 'search'?",
        ),
        (
            "POST", "/v1/stream/s/_schema", {"routingKey": {"jsonPointr": "/a", "required": True}},
            "routingKey.jsonPointr is not supported; did you mean 'jsonPointer'?",
        ),
        (
            "POST", "/v1/stream/s/_schema", {"schema": {"type": "object"}, "search": {**SEARCH, "feilds": {}}},
            "search.feilds is not supported; did you mean 'fields'?",
        ),
        (
            "POST", "/v1/stream/s/_profile", {"profile": {"kind": "evlog", "redactkeys": []}},
            "profile.redactkeys is not supported; did you mean 'redactKeys'?",
        ),
        (
            "POST", "/v1/stream/s/_profile",
            {"profile": {"kind": "state-protocol", "touch": {"enabled": True, "memory": {"bucketMS": 5}}}},
            "profile.touch.memory.bucketMS is not supported; did you mean 'bucketMs'?",
        ),
        (
            "POST", "/v1/stream/s/_schema",
            {"schema": {"type": "object"}, "lens": {**LENS, "descripton": ""}},
            "lens.descripton is not supported; did you mean 'description'?",
        ),
        (
            "POST", "/v1/stream/touched/touch/templates/activate", {"templates": [{**TEMPLATE, "entities": "e"}]},
            "unknown member 'entities' in templates[0]; did you mean 'entity'?",
        ),
        (
            "POST", "/v1/observe/request", {"streams": {"events": "s"}, "lookups": {}},
            "request.lookups is not supported; did you mean 'lookup'?",
        ),
        (
            "POST", "/tables/note/append", {"parent": "b", "payload": {}, "idempotencykey": "k"},
            "unknown member 'idempotencykey'; did you mean 'idempotencyKey'?",
        ),
    ],
)  # fmt: skip
def test_an_unknown_member_is_refused_with_the_nearest_name(
    http: httpx.Client, method: str, path: str, body: dict[str, Any], told: str
) -> None:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 400, answer.text
    assert told in answer.json()["error"]["message"]
    assert http.get("/v0/topics/t").status_code == 404, "nothing was created"


def test_a_configuration_that_was_read_can_be_written_again(http: httpx.Client) -> None:
    http.put("/v0/topics/again", json={"cap_records": 5}).raise_for_status()
    config = http.get("/v0/topics/again").json()["config"]
    assert config["cap_records"] == 5
    http.put("/v0/topics/again", json=config).raise_for_status()
    assert http.get("/v0/topics/again").json()["config"] == config


def test_members_of_a_write_that_are_not_known_are_ignored(http: httpx.Client) -> None:
    """The protocol lets later versions add members to requests."""
    assert http.post("/v0/topics/lenient", json={"records": RECORDS, "later": 1}).is_success


def test_a_long_name_is_cut() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        decode_body(msgspec.json.Decoder(TopicConfig), msgspec.json.encode({"x" * 100_000: 1}))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "nearest"), [("maxlogs", "max_logs"), ("MAX-LOGS", "max_logs"), ("lgos", "logs"), ("colour", None)]
)
def test_the_nearest_name(name: str, nearest: str | None) -> None:
    assert nearest_name(name, ["max_logs", "logs", "port"]) == nearest
