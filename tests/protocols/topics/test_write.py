"""Appending over HTTP."""

from __future__ import annotations

import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.server_process import StartServer
from support.topics_client import Client, eventually


def post(client: Client, topic: str, body: object, status: int = 200, query: str = "", **headers: str) -> Any:
    return client.call("POST", f"/v0/topics/{topic}{query}", body, status=status, headers=headers)


def refused(client: Client, topic: str, body: object, status: int = 400, **options: Any) -> dict[str, Any]:
    return client.refused("POST", f"/v0/topics/{topic}", body, status=status, **options)


def one(data: object = 1, **fields: object) -> dict[str, object]:
    """The body that writes one record."""
    return {"records": [{"data": data, **fields}]}


def raw(data: bytes, **fields: object) -> bytes:
    """The body that writes one record whose data is these bytes."""
    rest = b"".join(b',"%b":%b' % (name.encode(), msgspec.json.encode(value)) for name, value in fields.items())
    return b'{"records":[{"data":%b%b}]}' % (data, rest)


# --- what comes back -------------------------------------------------------------------------------------------


def test_the_first_write_creates_the_topic(client: Client, topic: str) -> None:
    answer = post(client, topic, {"records": [{"data": 1}, {"data": 2}, {"data": 3}]}, status=201)
    performance = answer.pop("performance")
    assert answer == {
        "topic": topic,
        "first_seq": 1,
        "last_seq": 3,
        "seqs": [1, 2, 3],
        "head_seq": 3,
        "count": 3,
        "created": True,
        "deduped": False,
    }
    assert {"server_total_ms", "wal_append_ms", "fsync_ms", "throttle_wait_ms"} == set(performance)
    assert performance["fsync_ms"] == performance["throttle_wait_ms"] == 0.0


def test_seqs_go_on_where_they_were_and_one_write_has_one_time(client: Client, topic: str) -> None:
    post(client, topic, one(), status=201)
    answer = post(client, topic, {"records": [{"data": n} for n in range(5)]})
    assert (answer["first_seq"], answer["last_seq"], answer["count"], answer["head_seq"]) == (2, 6, 5, 6)
    assert answer["created"] is False
    records = client.diff(topic)["records"]
    assert [record["$seq"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert len({record["$ts"] for record in records[1:]}) == 1
    assert records[0]["$ts"] <= records[1]["$ts"]


@pytest.mark.parametrize(("query", "has_seqs"), [("", True), ("?return_seqs=true", True), ("?return_seqs=0", False)])
def test_seqs_can_be_left_out(client: Client, topic: str, query: str, has_seqs: bool) -> None:
    answer = post(client, topic, one(), status=201, query=query)
    assert ("seqs" in answer) is has_seqs
    assert (answer["first_seq"], answer["last_seq"], answer["count"]) == (1, 1, 1)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_only_fsync_topics_wait_for_the_disk(client: Client, topic: str, durability: str) -> None:
    client.put(topic, durability=durability)
    performance = post(client, topic, one())["performance"]
    assert (performance["fsync_ms"] > 0) is (durability == "fsync")


# --- what is kept ----------------------------------------------------------------------------------------------

PAYLOADS = [
    b"null",
    b"true",
    b"0",
    b"-0.0",
    b"1e400",
    b"123456789012345678901234567890.10",
    b'""',
    b'"\\u00e4\\/\\ud83d\\ude00"',
    '"ä😀\u2028"'.encode(),
    b"[]",
    b"[ 1 ,\t2,\r\n 3 ]",
    b'{ "b" : 1,  "a":{"$seq":7}, "b":2 }',
    b'{"":""}',
    b'"' + b"x" * 100_000 + b'"',
]


@pytest.mark.parametrize("data", PAYLOADS, ids=lambda data: data[:24].decode())
def test_data_comes_back_byte_for_byte(client: Client, topic: str, data: bytes) -> None:
    post(client, topic, raw(data), status=201)
    content = client.request("POST", f"/v0/topics/{topic}/diff", {}).content
    assert b'"data":%b}' % data in content
    assert client.get(topic)["bytes"] == len(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
LABELS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(JSON, LABELS, LABELS, st.none() | st.dictionaries(st.text(max_size=5), JSON)), min_size=1))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_is_what_is_read(client: Client, rows: list[tuple[Any, Any, Any, Any]]) -> None:
    topic = "any-record"
    client.drop(topic)
    records = [{"data": data, "tag": tag, "node": node, "meta": meta} for data, tag, node, meta in rows]
    first = post(client, topic, {"records": records}, status=201)["first_seq"]
    page = client.diff(topic, first - 1, limit=1000, include_tags=True)
    read = [(r["data"], r.get("$tag"), r.get("$node"), r.get("meta")) for r in page["records"]]
    assert read == msgspec.json.decode(msgspec.json.encode(rows), type=list[tuple[Any, Any, Any, Any]])


def test_the_node_of_a_record_comes_before_that_of_the_batch(client: Client, topic: str) -> None:
    body = {"node": "batch", "records": [{"data": 1}, {"data": 2, "node": "own"}, {"data": 3, "node": None}]}
    post(client, topic, body, status=201)
    assert [record.get("$node") for record in client.diff(topic)["records"]] == ["batch", "own", "batch"]


def test_absent_fields_are_absent_and_not_null(client: Client, topic: str) -> None:
    post(client, topic, one(None, tag=None, node=None, meta=None), status=201)
    (record,) = client.diff(topic, include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}
    assert record["data"] is None


def test_meta_may_be_any_json(client: Client, topic: str) -> None:
    for meta in ({"a": {"b": [1]}}, [1], "text", 7, False):
        post(client, topic, one(meta=meta), status=201 if meta == {"a": {"b": [1]}} else 200)
        assert client.diff(topic, client.get(topic)["head_seq"] - 1)["records"][0]["meta"] == meta


# --- what is refused -------------------------------------------------------------------------------------------

BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b'{"records":[]}',
    b'{"records":{}}',
    b'{"records":[1]}',
    b'{"records":[{}]}',
    b'{"records":[{"tag":"a"}]}',
    b'{"records":[{"data":1,"tag":7}]}',
    b'{"records":[{"data":1,"node":[]}]}',
    b'{"records":[{"data":1}],"node":1}',
    b'{"records":[{"data":1}],"create":"yes"}',
    b'{"records":[{"data":1}],"config":[]}',
    b'{"records":[{"data":1}],"config":{"ttl_ms":-1}}',
    b'{"records":[{"data":1}],"idempotency_key":7}',
    b'{"records":[{"data":1}],"disable_backpressure":1}',
    b'{"records":[{"data":nul}]}',
    b'{"records":[{"data":01}]}',
    b'{"records":[{"data":NaN}]}',
    b'{"records":[{"data":[1,]}]}',
    b'{"records":[{"data":"\x01"}]}',
    b'{"records":[{"data":"\\ud800 alone"}]}',
    b'{"records":[{"data":1}]}x',
    b'{"records":[{"data":%b}]}' % (b"[" * 50_000 + b"]" * 50_000),
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: body[:44].decode())
def test_a_bad_body_is_refused_and_makes_nothing(client: Client, topic: str, body: bytes) -> None:
    assert refused(client, topic, body)["code"] == "invalid_request"
    client.refused("GET", f"/v0/topics/{topic}", status=404)


@pytest.mark.parametrize(
    "body", [raw(b'"\xff"'), raw(b'"\xc3"'), raw(b'"\xed\xa0\x80"'), raw(b"1")[:-1] + b',"node":"\xff"}']
)
def test_invalid_utf8_is_refused_wherever_it_is(client: Client, topic: str, body: bytes) -> None:
    assert refused(client, topic, body)["code"] == "invalid_request"


def test_a_batch_is_written_as_a_whole_or_not_at_all(client: Client, topic: str) -> None:
    client.put(topic)
    refused(client, topic, {"records": [{"data": 1}, {"data": 2, "tag": "x" * 257}]})
    refused(client, topic, {"records": [{"data": 1}, {"meta": {}}]})
    assert client.get(topic)["head_seq"] == 0


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"tag": "x" * 256}, True),
        ({"tag": "x" * 257}, False),
        ({"tag": "ä" * 128}, True),
        ({"tag": "ä" * 129}, False),
        ({"node": "x" * 128}, True),
        ({"node": "x" * 129}, False),
        ({"meta": "x" * (16 * 1024 - 2)}, True),
        ({"meta": "x" * (16 * 1024 - 1)}, False),
        ({"meta": {str(n): n for n in range(64)}}, True),
        ({"meta": {str(n): n for n in range(65)}}, False),
        ({"meta": {"a": {str(n): n for n in range(100)}}}, True),
    ],
    ids=lambda value: str(value)[:30],
)
def test_tag_node_and_meta_have_their_bounds(client: Client, topic: str, fields: dict[str, Any], fits: bool) -> None:
    client.put(topic)
    if fits:
        post(client, topic, one(**fields))
    else:
        assert refused(client, topic, one(**fields))["code"] == "invalid_request"
    if "node" in fields:
        body = {"records": [{"data": 1}], **fields}
        assert client.request("POST", f"/v0/topics/{topic}", body).status_code == (200 if fits else 400)


def test_data_and_meta_together_have_a_bound(client: Client, topic: str) -> None:
    limit = 1 << 20
    fits = b'"' + b"x" * (limit - 2) + b'"'
    post(client, topic, raw(fits), status=201)
    error = refused(client, topic, raw(fits[:-1] + b'x"'))
    assert error["code"] == "record_too_large"
    assert refused(client, topic, raw(fits, meta={}))["code"] == "record_too_large"
    assert refused(client, topic, raw(fits, meta={}, tag="a"))["code"] == "record_too_large"
    assert client.get(topic)["head_seq"] == 1


def test_a_batch_has_a_bound(client: Client, topic: str) -> None:
    records = [{"data": 1}] * 10_000
    assert post(client, topic, {"records": records}, status=201)["count"] == 10_000
    error = refused(client, topic, {"records": [*records, {"data": 1}]})
    assert error["code"] == "batch_too_large"
    assert error["detail"] == {"records": 10_001, "max": 10_000}


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "json"])
def test_another_content_type_is_refused_even_before_the_topic_is_looked_for(
    client: Client, topic: str, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    response = client.http.post(f"/v0/topics/{topic}", content=b'{"records":[{"data":1}]}', headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")
    client.refused("GET", f"/v0/topics/{topic}", status=404)


def test_an_empty_body_without_a_content_type_is_of_the_wrong_type(client: Client, topic: str) -> None:
    assert client.refused("POST", f"/v0/topics/{topic}", status=415)["code"] == "unsupported_media_type"


def test_the_content_type_may_have_parameters(client: Client, topic: str) -> None:
    for content_type in ("application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"):
        client.request("POST", f"/v0/topics/{topic}", one(), headers={"content-type": content_type}).raise_for_status()


# --- creating along the way ------------------------------------------------------------------------------------


def test_create_says_whether_a_topic_may_be_made(client: Client, topic: str) -> None:
    error = refused(client, topic, {**one(), "create": False}, status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic})
    error = refused(client, topic, {**one(), "config": {"auto_create": False}}, status=404)
    assert error["code"] == "topic_not_found"
    body = {**one(), "create": True, "config": {"auto_create": False, "ttl_ms": 60_000}}
    assert post(client, topic, body, status=201)["created"] is True
    assert {"auto_create": False, "ttl_ms": 60_000}.items() <= client.get(topic)["config"].items()
    assert post(client, topic, {**one(), "create": False})["head_seq"] == 2


def test_an_inline_config_is_for_new_topics_only(client: Client, topic: str) -> None:
    post(client, topic, {**one(), "config": {"type": "queue", "lease_ms": 500, "durable": True}}, status=201)
    config = client.get(topic)["config"]
    assert (config["type"], config["lease_ms"], config["durability"]) == ("queue", 500, "fsync")
    post(client, topic, {**one(), "config": {"type": "log", "lease_ms": 900}})
    assert client.get(topic)["config"] == config


@pytest.mark.parametrize(
    ("config", "records"),
    [
        ({"discard": "reject", "cap_records": 1}, [{"data": 1}, {"data": 2}]),
        ({"discard": "reject", "cap_bytes": 3}, [{"data": 12345}]),
        ({"type": "log"}, [{"data": 1, "priority": 5}]),
        ({"type": "queue", "dead_letter": "no name"}, [{"data": 1}]),
    ],
)
def test_a_write_that_fails_leaves_no_topic_behind(
    client: Client, topic: str, config: dict[str, Any], records: list[Any]
) -> None:
    count = client.call("GET", "/v0/ready")["topics"]
    refused(client, topic, {"records": records, "config": config})
    client.refused("GET", f"/v0/topics/{topic}", status=404)
    assert client.call("GET", "/v0/ready")["topics"] == count


# --- full topics -----------------------------------------------------------------------------------------------


def test_a_full_topic_that_rejects_takes_nothing_more(client: Client, topic: str) -> None:
    client.put(topic, discard="reject", cap_records=3)
    client.write(topic, [1, 2])
    error = refused(client, topic, {"records": [{"data": 3}, {"data": 4}]}, status=422)
    assert error["code"] == "topic_full"
    assert error["detail"] == {"topic": topic, "cap_records": 3, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1}
    assert client.get(topic)["head_seq"] == 2
    client.write(topic, [3])
    refused(client, topic, one(), status=422)
    client.delete(topic, before_seq=2)
    assert client.write(topic, [4])["first_seq"] == 4
    refused(client, topic, one(), status=422)


def test_a_full_topic_by_bytes(client: Client, topic: str) -> None:
    client.put(topic, discard="reject", cap_bytes=10)
    client.write(topic, [{"data": 12345, "meta": [1]}])
    assert refused(client, topic, one(123), status=422)["code"] == "topic_full"
    client.write(topic, [12])


def test_what_could_never_fit_is_too_large(client: Client, topic: str) -> None:
    client.put(topic, discard="reject", cap_records=2, cap_bytes=10)
    assert refused(client, topic, {"records": [{"data": 1}] * 3})["code"] == "record_too_large"
    assert refused(client, topic, one("x" * 20))["code"] == "record_too_large"


def test_a_full_topic_that_discards_makes_room(client: Client, topic: str) -> None:
    client.put(topic, cap_records=3)
    client.write(topic, [1, 2])
    assert client.write(topic, [3, 4, 5])["seqs"] == [3, 4, 5]
    state = client.get(topic)
    assert (state["earliest_seq"], state["count"]) == (3, 3)
    assert client.write(topic, list(range(10)))["count"] == 10
    assert client.get(topic)["count"] == 3


# --- repetitions -----------------------------------------------------------------------------------------------


def test_a_repeated_write_is_recognised_by_its_key(client: Client, topic: str) -> None:
    first = client.write(topic, [1, 2], idempotency_key="key")
    client.write(topic, [3])
    again = post(client, topic, {"records": [{"data": "other"}], "idempotency_key": "key"})
    assert {name: again[name] for name in ("first_seq", "last_seq", "seqs", "head_seq", "count", "created")} == {
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": False,
    }
    assert (first["deduped"], again["deduped"]) == (False, True)
    assert client.get(topic)["head_seq"] == 3


def test_the_key_may_be_in_a_header_and_the_body_wins(client: Client, topic: str) -> None:
    post(client, topic, one(), status=201, **{"Idempotency-Key": "header"})
    assert post(client, topic, one(), **{"Idempotency-Key": "header"})["deduped"] is True
    both = {**one(), "idempotency_key": "body"}
    assert post(client, topic, both, **{"Idempotency-Key": "header"})["deduped"] is False
    assert post(client, topic, {**one(), "idempotency_key": "body"})["deduped"] is True
    assert post(client, topic, {**one(), "idempotency_key": "header"})["deduped"] is True
    assert client.get(topic)["head_seq"] == 2


def test_keys_are_the_topics_own(client: Client, topic: str) -> None:
    client.write(topic, [1], idempotency_key="key")
    assert client.write(topic + ".other", [1], idempotency_key="key")["deduped"] is False


@pytest.mark.parametrize(("key", "fits"), [("x" * 256, True), ("ä" * 128, True), ("x" * 257, False), ("", False)])
def test_a_key_has_a_bound(client: Client, topic: str, key: str, fits: bool) -> None:
    client.put(topic)
    status = client.request("POST", f"/v0/topics/{topic}", {**one(), "idempotency_key": key}).status_code
    assert status == (200 if fits else 400)


def test_a_key_is_forgotten_after_the_window(client: Client, topic: str) -> None:
    client.put(topic, idempotency_window_ms=20)
    client.write(topic, [1], idempotency_key="key")
    eventually(lambda: not client.write(topic, [1], idempotency_key="key")["deduped"])
    assert client.get(topic)["head_seq"] == 2


def test_a_repetition_is_recognised_on_a_full_topic_too(client: Client, topic: str) -> None:
    client.put(topic, discard="reject", cap_records=1)
    client.write(topic, [1], idempotency_key="key")
    refused(client, topic, one(), status=422)
    assert client.write(topic, [1], idempotency_key="key")["deduped"] is True


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_many_who_write_with_the_same_key_write_once(client: Client, topic: str, durability: str) -> None:
    client.put(topic, durability=durability)
    url = f"{client.url}/v0/topics/{topic}"
    body = msgspec.json.encode({**one(), "idempotency_key": "key"})
    headers = {"content-type": "application/json"}
    with httpx.Client(trust_env=False) as shared, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: shared.post(url, content=body, headers=headers).json(), range(16)))
    assert sorted(answer["deduped"] for answer in answers) == [False] + [True] * 15
    assert {answer["first_seq"] for answer in answers} == {1}
    assert client.get(topic)["head_seq"] == 1


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_keys_outlive_the_process(start_server: StartServer, kill: bool) -> None:
    server = start_server()
    client = server.client()
    client.put("durable", durable=True)
    client.put("queue", type="queue")
    for name in ("disk", "durable", "queue"):
        client.write(name, [1, 2], idempotency_key="key")
        client.write(name, [3])
    if kill:
        server.close_clients()
        server.kill()
    else:
        server.stop()
    client = server.start().client()
    for name in ("disk", "durable", "queue"):
        again = client.write(name, [1, 2], idempotency_key="key")
        assert (again["deduped"], again["seqs"], again["head_seq"]) == (True, [1, 2], 2)
        assert client.get(name)["head_seq"] == 3


# --- compression -----------------------------------------------------------------------------------------------


def test_a_body_may_be_compressed(client: Client, topic: str) -> None:
    body = msgspec.json.encode({"records": [{"data": n} for n in range(1000)]})
    for packed in (gzip.compress(body), gzip.compress(body[:100]) + gzip.compress(body[100:])):
        answer = client.request("POST", f"/v0/topics/{topic}", packed, headers={"content-encoding": "gzip"}).json()
        assert answer["count"] == 1000
    client.request("POST", f"/v0/topics/{topic}", one(), headers={"content-encoding": "identity"}).raise_for_status()


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b'{"records":[{"data":1}]}', "gzip", 400),
        (gzip.compress(b'{"records":[{"data":1}]}')[:-4], "gzip", 400),
        (gzip.compress(b'{"records":[{"data":1}]}') + b"garbage", "gzip", 400),
        (gzip.compress(b'{"records":'), "gzip", 400),
        (b'{"records":[{"data":1}]}', "br", 415),
    ],
    ids=["plain", "cut off", "garbage behind", "bad JSON", "another encoding"],
)
def test_a_badly_compressed_body_is_refused(
    client: Client, topic: str, body: bytes, encoding: str, status: int
) -> None:
    refused(client, topic, body, status=status, headers={"content-encoding": encoding})


def test_a_small_body_cannot_become_a_huge_one(start_server: StartServer, lane: str) -> None:
    client = start_server(lane=lane, max_body_bytes=10_000).client()
    headers = {"content-encoding": "gzip"}
    exact = raw(b'"' + b"x" * (10_000 - len(raw(b'""'))) + b'"')
    assert len(exact) == 10_000
    client.request("POST", "/v0/topics/a", gzip.compress(exact), headers=headers).raise_for_status()
    bomb = gzip.compress(raw(b'"' + b"x" * 10_000_000 + b'"'))
    assert len(bomb) < 10_000 + 200
    error = refused(client, "a", gzip.compress(raw(b'"' + b"x" * 20_000 + b'"')), status=413, headers=headers)
    assert (error["code"], error["detail"]) == ("payload_too_large", {"max": 10_000})
    assert refused(client, "a", exact + b" ", status=413)["code"] == "payload_too_large"
    assert client.get("a")["head_seq"] == 1


# --- many at once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_writes_at_the_same_time_get_seqs_of_their_own_without_gaps(
    client: Client, topic: str, durability: str
) -> None:
    client.put(topic, durability=durability)
    seqs: list[int] = []
    start = threading.Barrier(4)

    def write(writer: int) -> None:
        with httpx.Client(base_url=client.url, trust_env=False) as own:
            start.wait()
            for number in range(25):
                records = [{"data": [writer, number, part]} for part in range(1 + number % 3)]
                answer = own.post(f"/v0/topics/{topic}", json={"records": records}).json()
                assert answer["seqs"] == list(range(answer["first_seq"], answer["last_seq"] + 1))
                seqs.extend(answer["seqs"])

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seqs) == list(range(1, len(seqs) + 1))
    records = client.diff(topic, limit=1000)["records"]
    for writer in range(4):
        own = [tuple(record["data"][1:]) for record in records if record["data"][0] == writer]
        assert own == sorted(own)
        assert len(own) == len(seqs) // 4
