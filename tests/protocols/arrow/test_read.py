from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from support.arrow_client import ArrowClient, table
from support.raw_http import RawConnection, request
from support.server_process import ServerProcess, StartServer
from support.streams_client import StreamsClient
from support.topics_client import Client

from strandline.history.record_schema import RECORDS


def test_records_of_any_protocol_come_as_columns(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.write(name, [{"data": {"a": 1}, "tag": "k", "node": "n", "meta": {"m": 1}}, {"data": "ü"}])
    read = arrow.read(name)
    assert read.schema == RECORDS
    first = topics.diff(name)["records"][0]
    assert read.to_pylist()[0] | {"ts": 0} == {
        "log": name, "epoch": arrow.call("GET", f"logs/{name}")["epoch"], "seq": 1, "ts": 0, "key": "k", "node": "n",
        "meta": b'{"m":1}', "data": b'{"a":1}',
    }  # fmt: skip
    assert read.column("ts").cast(pa.int64())[0].as_py() == first["$ts"] * 1000
    assert read.column("data")[1].as_py() == '"ü"'.encode()


def test_a_stream_of_bytes_is_read_as_it_is(arrow: ArrowClient, streams: StreamsClient, name: str) -> None:
    streams.create(f"{name}/with/slashes", "application/octet-stream", b"\x00\xff")
    streams.append(f"{name}/with/slashes", b"more", "application/octet-stream")
    assert arrow.read(f"{name}/with/slashes").column("data").to_pylist() == [b"\x00\xff", b"more"]
    assert arrow.read(f"{name}%2Fwith%2Fslashes").num_rows == 2


def test_what_is_read_can_be_bounded(arrow: ArrowClient, topics: Client, name: str) -> None:
    for number in range(6):
        topics.write(name, [{"data": number, "tag": "even" if number % 2 == 0 else "odd"}])
    assert arrow.values(name, after=2) == [2, 3, 4, 5]
    assert arrow.values(name, after=1, through=3) == [1, 2]
    assert arrow.values(name, key="odd") == [1, 3, 5]
    assert arrow.values(name, key="odd", after=2, through=5) == [3]
    assert arrow.values(name, key="none") == []
    assert arrow.values(name, through=10**18) == [0, 1, 2, 3, 4, 5]
    assert arrow.values(name, after=100) == []
    times = [record["$ts"] for record in topics.diff(name)["records"]]
    assert arrow.values(name, since=times[0], until=times[-1] + 1) == [0, 1, 2, 3, 4, 5]
    assert arrow.values(name, until=times[0]) == []
    assert arrow.values(name, since="2020-01-01T00:00:00+01:00", until="2020-01-01T00:00:00Z") == []
    assert arrow.values(name, since="2020-01-01T00:00:00Z") == [0, 1, 2, 3, 4, 5]


def test_batches_are_as_large_as_asked_for_and_compressed_if_asked(arrow: ArrowClient, name: str) -> None:
    arrow.append(name, table(*["x" * 100] * 100), status=201, create="true")
    sizes = {}
    for compression in (None, "lz4", "zstd"):
        query = {"batch_rows": 30} | ({"compression": compression} if compression else {})
        response = arrow.request("GET", f"records/{name}", params=query)
        batches = list(pa.ipc.open_stream(response.content))
        assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]
        sizes[compression] = len(response.content)
    assert sizes["zstd"] < sizes[None] / 2
    assert sizes["lz4"] < sizes[None] / 2


def test_what_is_gone_is_simply_not_there(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.put(name, cap_records=4)
    topics.write(name, [1, 2, 3, 4, 5, 6])
    response = arrow.request("GET", f"records/{name}")
    assert response.headers["strandline-earliest"] == "3"
    assert response.headers["strandline-through"] == "6"
    assert arrow.values(name) == [3, 4, 5, 6]
    assert arrow.seqs(name, after=0) == [3, 4, 5, 6]


def test_an_empty_log_is_an_empty_stream(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.put(name)
    read = arrow.read(name)
    assert (read.schema, read.num_rows) == (RECORDS, 0)


def test_another_log_of_the_name_is_not_taken_for_the_one_meant(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.write(name, [1])
    epoch = arrow.call("GET", f"logs/{name}")["epoch"]
    assert arrow.values(name, epoch=epoch) == [1]
    topics.drop(name)
    topics.write(name, [2])
    error = arrow.refused("GET", f"records/{name}", 409, "epoch_changed", params={"epoch": epoch})
    assert error["detail"]["epoch"] > epoch
    arrow.refused("GET", f"logs/{name}", 409, "epoch_changed", params={"epoch": epoch})


def test_what_makes_no_sense_is_refused(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.write(name, [1])
    for query in (
        {"after": "-1"}, {"after": "x"}, {"through": "1.5"}, {"through": str(1 << 63)}, {"since": "yesterday"},
        {"until": "9" * 19}, {"epoch": ""}, {"batch_rows": "0"}, {"batch_rows": str(1 << 21)}, {"compression": "gzip"},
    ):  # fmt: skip
        arrow.refused("GET", f"records/{name}", 400, "invalid_request", params=query)
    arrow.refused("GET", "records/absent", 404, "log_not_found")
    arrow.refused("GET", "records/%ff", 400, "invalid_request")
    arrow.refused("GET", "records/", 400, "invalid_request")
    arrow.refused("GET", "records/__absent__", 404, "log_not_found")


def test_records_on_their_way_through_a_router_have_arrived(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.put(name, durability="fsync")
    topics.put(f"{name}-copy", durability="fsync")
    topics.call("PUT", f"/v0/routers/{name}", {"source": name, "dest": f"{name}-copy"}, status=201)
    for number in range(5):
        topics.write(name, [number])
        assert arrow.values(f"{name}-copy") == list(range(number + 1))


def test_a_fork_has_what_it_shares(arrow: ArrowClient, streams: StreamsClient, name: str) -> None:
    streams.create(name, body=[1, 2])
    streams.create(f"{name}-fork", stream_forked_from=f"/v1/stream/{name}")
    streams.append(f"{name}-fork", [3])
    assert arrow.values(f"{name}-fork") == [1, 2, 3]
    assert set(arrow.read(f"{name}-fork").column("log").to_pylist()) == {f"{name}-fork"}
    base = arrow.call("GET", f"logs/{name}-fork")["base"]
    assert base == {"epoch": arrow.call("GET", f"logs/{name}")["epoch"], "through": 2}
    # A source that was deleted is there for its forks only, and for those who run the server.
    streams.request("DELETE", name)
    assert arrow.values(f"{name}-fork") == [1, 2, 3]
    listed = [log["name"] for log in arrow.call("GET", "logs", params={"prefix": name})["logs"]]
    assert listed == [f"{name}-fork"]


# --- slow readers --------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(arrow: ArrowClient, name: str) -> str:
    """A log of 24 MB: more than all buffers on the way hold."""
    for status in (201, 200, 200):
        arrow.append(name, table(*["x" * 4000] * 2000), create="true", status=status)
    return name


def test_a_slow_reader_gets_everything_and_holds_nobody_up(
    arrow: ArrowClient, server: ServerProcess, filled: str
) -> None:
    slow = [RawConnection(server.url) for _ in range(3)]
    for connection in slow:
        connection.send(request("GET", f"/arrow/records/{filled}", None, "connection: close"))
    # More of them than there are threads, and yet there is one for everybody else.
    assert len(arrow.seqs(filled)) == 6000
    for connection in slow:
        body = _dechunked(_everything(connection))
        assert pa.ipc.open_stream(body).read_all().num_rows == 6000
        connection.socket.close()


def _everything(connection: RawConnection) -> bytes:
    return b"".join(iter(partial(connection.socket.recv, 1 << 20), b""))


def _dechunked(answer: bytes) -> bytes:
    at = answer.index(b"\r\n\r\n") + 4
    chunks = []
    while True:
        end = answer.index(b"\r\n", at)
        size = int(answer[at:end], 16)
        if not size:
            return b"".join(chunks)
        chunks.append(answer[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def test_a_reader_that_goes_away_leaves_nothing_behind(start_server: StartServer) -> None:
    server = start_server(max_sse_connections=1)
    client = ArrowClient(server.url)
    for status in (201, 200, 200):
        client.append("log", table(*["x" * 4000] * 2000), create="true", status=status)
    with RawConnection(server.url) as connection:
        connection.send(request("GET", "/arrow/records/log"))
        assert connection.socket.recv(100)
        error = client.refused("GET", "records/log", 429, "throttled")
        assert "streams" in error["message"]
    # The server learns in its own time that the reader is gone, but not in so many requests' time.
    assert any(client.request("GET", "records/log").status_code == 200 for _ in range(2000))
    client.close()


def test_a_log_that_is_dropped_cuts_its_readers_off(
    arrow: ArrowClient, topics: Client, server: ServerProcess, filled: str
) -> None:
    with RawConnection(server.url) as connection:
        connection.send(request("GET", f"/arrow/records/{filled}", None, "connection: close"))
        connection.socket.recv(1)
        topics.drop(filled)
        assert not _everything(connection).endswith(b"0\r\n\r\n")


# --- other readers -------------------------------------------------------------------------------------------------


def test_duckdb_polars_and_pandas_read_it(arrow: ArrowClient, name: str) -> None:
    import duckdb
    import polars

    arrow.append(name, table({"n": 1}, {"n": 2}, key=["a", "b"]), create="true", status=201)
    content = arrow.request("GET", f"records/{name}").content
    records = pa.ipc.open_stream(content).read_all()
    assert duckdb.sql("select sum((decode(data)::json ->> 'n')::int) from records").fetchall() == [(3,)]
    assert polars.read_ipc_stream(content)["key"].to_list() == ["a", "b"]
    assert records.to_pandas()["seq"].tolist() == [1, 2]
