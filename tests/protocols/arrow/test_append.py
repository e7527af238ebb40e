from __future__ import annotations

import gzip
import json
from typing import Any

import polars
import pyarrow as pa
import pytest
from support.arrow_client import ARROW, ArrowClient, encode, table
from support.server_process import StartServer
from support.streams_client import JSON, TEXT, StreamsClient
from support.topics_client import Client

SCHEMA = {"type": "object"}


def test_rows_become_records_that_every_protocol_shows(
    arrow: ArrowClient, topics: Client, streams: StreamsClient, name: str
) -> None:
    rows = table({"a": 1}, "ü", key=["k", None], node=[None, "n"], meta=[b'{"m": 1}', None])
    answer = arrow.append(name, rows, create="true", status=201)
    assert answer | {"ts": 0} == {"first": 1, "last": 2, "ts": 0, "count": 2, "progress": None}
    first, second = topics.diff(name, include_tags=True)["records"]
    assert (first["data"], first["$tag"], first["meta"]) == ({"a": 1}, "k", {"m": 1})
    assert (second["data"], second["$node"]) == ("ü", "n")
    assert first["$ts"] == answer["ts"]
    assert streams.values(name) == [{"a": 1}, "ü"]
    assert arrow.append(name, table(3))["first"] == 3
    assert topics.get(name)["config"]["type"] == "log"


def test_records_may_be_of_another_time_that_is_not_ahead_of_the_clock(arrow: ArrowClient, name: str) -> None:
    assert arrow.append(name, table(1), create="true", ts="1700000000123", status=201)["ts"] == 1_700_000_000_123
    assert arrow.append(name, table(2), ts="2023-11-14T22:13:21Z")["ts"] == 1_700_000_001_000
    # Times never go back.
    assert arrow.append(name, table(3), ts="5")["ts"] == 1_700_000_001_000
    arrow.not_appended(name, table(4), 400, "invalid_request", ts="253402300799999")
    arrow.not_appended(name, table(4), 400, "invalid_request", ts="soon")
    assert arrow.call("GET", f"logs/{name}")["head"] == 3


def test_a_log_is_made_only_if_asked_for_and_only_with_a_name_it_can_have(arrow: ArrowClient, name: str) -> None:
    arrow.not_appended(name, table(1), 404, "log_not_found")
    arrow.not_appended(name, table(1), 404, "log_not_found", create="false")
    arrow.not_appended(f"{name}/a", table(1), 400, "invalid_request", create="true")
    arrow.not_appended("_own", table(1), 409, "not_writable", create="true")
    # What is refused leaves no log behind.
    arrow.not_appended(name, table(b"no json"), 400, "not_json", create="true")
    making = {"create": "true", "writer": "w"}
    arrow.not_appended(name, table(1), 409, "progress_conflict", progress={"a": 2}, before={"a": 1}, **making)
    arrow.not_appended(name, table(1), 400, "invalid_request", progress={"a": 1 << 70}, **making)
    arrow.refused("GET", f"logs/{name}", 404, "log_not_found")
    assert arrow.append(name, table(), create="true", status=201)["count"] == 0
    assert arrow.call("GET", f"logs/{name}")["head"] == 0


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"data": pa.array(['{"a":1}', " [2] "], pa.string())}),
        pa.table({"data": pa.array(['{"a":1}', "[2]"], pa.large_string())}),
        pa.table({"data": pa.array(['{"a":1}', "[2]"], pa.string_view())}),
        pa.table({"data": pa.array([b'{"a":1}', b"[2]"], pa.large_binary())}),
        pa.table({"data": pa.array([b'{"a":1}', b"[2]"], pa.binary_view())}),
        pa.table({"data": pa.array(['{"a":1}', "[2]"]).dictionary_encode()}),
        pa.table({"data": ['{"a":1}', "[2]"], "key": pa.nulls(2), "meta": pa.nulls(2, pa.string())}),
        pa.concat_tables([pa.table({"data": ['{"a":1}']}), pa.table({"data": ["[2]"]})]),
        pa.table({"data": ["skipped", '{"a":1}', "[2]"]}).slice(1),
        pa.table({"data": ["skipped" * 9, '{"a":1}', "[2]"]}, pa.schema([("data", pa.string_view())])).slice(1),
    ],
    ids=lambda rows: "-".join(map(str, rows.schema.types)),
)
def test_strings_and_bytes_of_every_type_are_taken(arrow: ArrowClient, name: str, rows: Any) -> None:
    for compression in (None, "zstd", "lz4"):
        arrow.append(name, encode(rows, compression), create="true", status=201 if compression is None else 200)
    assert arrow.values(name) == [{"a": 1}, [2]] * 3
    # Blanks around a value are no part of it.
    assert arrow.read(name).column("data").to_pylist()[1] == b"[2]"


def test_what_polars_writes_is_taken(arrow: ArrowClient, name: str) -> None:
    frame = polars.DataFrame({"data": ['"a"', '"b"'], "key": ["x", None]})
    for level, status in ((polars.CompatLevel.oldest(), 201), (polars.CompatLevel.newest(), 200)):
        body = frame.write_ipc_stream(None, compat_level=level).getvalue()
        arrow.append(name, body, create="true", status=status)
    assert arrow.values(name) == ["a", "b"] * 2


def test_a_body_may_be_compressed_as_a_whole(arrow: ArrowClient, name: str) -> None:
    options = arrow.sending(gzip.compress(encode(table(1))), create="true")
    options["headers"]["content-encoding"] = "gzip"
    arrow.call("POST", f"records/{name}", status=201, **options)
    assert arrow.values(name) == [1]


def test_a_log_of_json_takes_nothing_else(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.put(name)
    for bad in (b"", b"{", b"1 2", b"1,2", b"'a'", b'"\xff"', b"[" * 100_000, b"\xef\xbb\xbf1"):
        error = arrow.not_appended(name, table(1, bad, 3), 400, "not_json")
        assert error["detail"] == {"row": 1}
    # Two halves that would make one, and a whole that would make two.
    error = arrow.not_appended(name, table(b"[1", b"2]", b"3,4"), 400, "not_json")
    assert error["detail"] == {"row": 0}
    assert topics.get(name)["head_seq"] == 0


def test_a_stream_of_something_else_takes_anything(arrow: ArrowClient, streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    arrow.append(name, table(b"no json ", b"\xff", b""))
    assert streams.read(name).content == b"no json \xff"
    streams.append(name, "more", TEXT)
    assert arrow.read(name).column("data").to_pylist() == [b"no json ", b"\xff", b"", b"more"]


def test_streams_with_rules_of_their_own_are_left_to_their_protocol(
    arrow: ArrowClient, streams: StreamsClient, name: str
) -> None:
    streams.create(name, JSON)
    arrow.append(name, table(1))
    streams.request("POST", name, headers={"stream-closed": "true"})
    assert "closed" in arrow.not_appended(name, table(2), 409, "not_writable")["message"]
    streams.create(f"{name}-schema", JSON)
    streams.request("POST", f"{name}-schema/_schema", {"schema": SCHEMA}, headers={"content-type": JSON})
    assert "schema" in arrow.not_appended(f"{name}-schema", table({}), 409, "not_writable")["message"]
    assert arrow.call("GET", f"logs/{name}-schema")["registry"]["currentVersion"] == 1
    arrow.not_appended("__stream_metrics__", table({}), 409, "not_writable")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pa.table({"key": ["a"]}), "'data' is missing"),
        (pa.table({"data": ["1"], "seq": [1]}), "column 'seq'"),
        (pa.table({"data": [1]}), "must be strings or binary"),
        (pa.table({"data": ["1"], "key": [b"a"]}), "must be strings"),
        (pa.table([["1"], ["2"]], ["data", "data"]), "is repeated"),
        (pa.table({"data": ["1", None]}), "row 1: data must not be null"),
        (pa.table({"data": pa.nulls(2)}), "has the type null"),
        (pa.table({"data": ["1"], "meta": ["{"]}), "meta is not valid JSON"),
        (pa.table({"data": ["1"], "meta": [json.dumps({str(key): 1 for key in range(65)})]}), "65 keys"),
        (b"", "not a valid Arrow stream"),
        (b"no arrow at all", "not a valid Arrow stream"),
        (encode(pa.table({"data": ["1"]}))[:-40], "not a valid Arrow stream"),
    ],
)
def test_what_is_no_table_of_records_is_refused(arrow: ArrowClient, name: str, rows: Any, words: str) -> None:
    assert words in arrow.not_appended(name, rows, 400, "invalid_request", create="true")["message"]


def test_what_is_too_large_is_refused(start_server: StartServer) -> None:
    server = start_server(max_body_bytes=20_000, max_record_bytes=1000, max_meta_bytes=100, max_tag_bytes=10)
    client = ArrowClient(server.url)
    for rows, words in (
        (table("x" * 1000), "data has 1002 bytes"),
        (table("x" * 950, meta=[b'"%b"' % (b"m" * 60)]), "data and meta"),
        (table("x", meta=[b'"%b"' % (b"m" * 100)]), "meta has 102"),
        (table("x", key=["k" * 11]), "key has 11"),
        (table("x", node=["n" * 200]), "node has 200"),
    ):
        error = client.not_appended("log", rows, 400, "record_too_large", create="true")
        assert words in error["message"]
        assert error["detail"]["row"] == 0
    client.not_appended("log", table(*["x" * 500] * 50), 413, "payload_too_large", create="true")
    for rows in (
        encode(table(*["x" * 500] * 50), "zstd"),
        encode(pa.table({"data": pa.array(['"%s"' % ("x" * 500)] * 50).dictionary_encode()})),
    ):
        assert len(rows) < 10_000
        client.not_appended("log", rows, 413, "payload_too_large", create="true")
    client.refused("GET", "logs/log", 404, "log_not_found")
    client.close()


def test_a_body_of_another_type_is_refused(arrow: ArrowClient, name: str) -> None:
    arrow.refused("POST", f"records/{name}", 415, "unsupported_media_type", json={"data": 1})
    arrow.refused("POST", f"records/{name}", 415, "unsupported_media_type", content=encode(table(1)))
    options = arrow.sending(table(1), create="true")
    options["headers"]["content-type"] = f"{ARROW}; charset=utf-8"
    arrow.call("POST", f"records/{name}", status=201, **options)


def test_a_log_that_is_full_says_so_and_takes_nothing_of_it(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.put(name, cap_records=3, discard="reject")
    arrow.append(name, table(1, 2))
    arrow.not_appended(name, table(3, 4), 422, "log_full", writer="w", progress={"a": 1})
    arrow.not_appended(name, table(1, 2, 3, 4), 400, "record_too_large")
    assert arrow.values(name) == [1, 2]
    assert arrow.call("GET", f"logs/{name}", params={"writer": "w"})["progress"] is None


def test_jobs_can_be_brought_in_bulk(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.queue(name)
    arrow.append(name, table("a", "b"))
    assert [job["data"] for job in topics.claim(name, max=2)] == ["a", "b"]


def test_a_router_passes_on_what_comes_in_bulk(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.put(name)
    topics.call("PUT", f"/v0/routers/{name}", {"source": name, "dest": f"{name}-copy"}, status=201)
    arrow.append(name, table(*range(100)))
    assert arrow.values(f"{name}-copy") == list(range(100))
