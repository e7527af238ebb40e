"""Both lanes give the same answers, byte for byte but for times, whatever is sent to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from support.lanes import Lanes, both_lanes, send, without_times
from support.raw_http import RawConnection, request

RECORD = b'{"records":[{"data":1}]}'
CHUNKED = (
    b"POST /v0/topics/%b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    with both_lanes(tmp_path_factory.mktemp("lanes"), settings={"max_body_bytes": 20_000}) as lanes:
        yield lanes


def test_the_usual_requests(lanes: Lanes) -> None:
    name = "/v0/topics/usual"
    answer = lanes.both(
        send(
            request("PUT", name, b"{}"),
            request("PUT", name, b'{"priority":5}'),
            request("GET", name),
            request("POST", name, RECORD),
            request("POST", name, b'{"records":[{"data":[1, 2],"tag":"t","node":"n","meta":{"a":1}}]}'),
            request("POST", name + "?return_seqs=false", RECORD),
            request("POST", name + "/diff", b'{"include_tags":true}'),
            request("POST", name + "/diff"),
            request("POST", name + "/diff", b'{"from_seq":9}'),
            request("POST", name + "/diff", b'{"from_seq":3,"wait_ms":1}'),
            request("PUT", name + "/consumers/c", b'{"seq":1}'),
            request("GET", name + "/consumers"),
            request("POST", name + "/groups/g", b'{"node":"n","of":2}'),
            request("POST", name + "/groups/g", b'{"node":"n","held":[{"share":0,"lease":1,"seq":1}]}'),
            request("POST", name + "/diff", b'{"shares":{"of":2,"only":[1]}}'),
            request("GET", name + "/groups/g"),
            request("POST", name + "/groups/g", b'{"node":"n","leave":true}'),
            request("DELETE", name + "/groups/g"),
            request("POST", name + "/delete", b'{"match":"t"}'),
            request("GET", "/v0/topics?prefix=usual"),
            request("DELETE", name),
            request("GET", name),
        )
    )
    assert answer.count(b"HTTP/1.1 20") == 21
    assert b"connection:" not in answer.lower()


def test_queues(lanes: Lanes) -> None:
    name = "/v0/topics/jobs"
    answer = lanes.both(
        send(
            request("POST", name, b'{"records":[{"data":1},{"data":2}],"config":{"type":"queue"}}'),
            request("POST", name + "/claim", b'{"node":"n","max":5}'),
            request("POST", name + "/ack", b'{"node":"n","seqs":[1]}'),
            request("POST", name + "/nack", b'{"node":"n","seqs":[2]}'),
            request("POST", name + "/extend", b'{"node":"n","seqs":[2],"lease_ms":1000}'),
            request("POST", name + "/ack", b'{"node":"n","seqs":[2],"lease_ids":[]}'),
        )
    )
    assert answer.count(b"HTTP/1.1 20") == 5


@pytest.mark.parametrize(
    "one",
    [
        request("POST", "/v0/topics/a", b"{"),
        request("POST", "/v0/topics/a", b'{"records":[]}'),
        request("POST", "/v0/topics/a", b'{"records":[{"data":"\xff"}]}'),
        request("POST", "/v0/topics/-bad", RECORD),
        request("POST", "/v0/topics/a%2Fb", RECORD),
        request("POST", "/v0/topics/a"),
        request("POST", "/v0/topics/a", None, "content-type: application/json", "content-length: 0"),
        request("POST", "/v0/topics/a", None, "content-type: text/plain", "content-length: 0"),
        request("POST", "/v0/topics/a", RECORD, "content-encoding: gzip"),
        request("POST", "/v0/topics/a", RECORD, "content-encoding: br"),
        request("GET", "/v0/topics/absent"),
        request("GET", "/v0/topics/absent", None, "accept-encoding: gzip"),
        request("GET", "/v0/topics/absent?x=%zz&&=&a=b=c"),
        request("GET", "/v0/topics/%61bsent"),
        request("GET", "/v0/topics/%E4%FF"),
        request("GET", "/v0/topics/"),
        request("GET", "/v0/topics//diff"),
        request("GET", "//v0/topics/absent"),
        request("GET", "/v0/topics/absent#fragment"),
        request("GET", "/"),
        request("GET", "*"),
        request("GET", "/v0/topics?cursor=!!"),
        request("GET", "/v0/topics/absent/work?node=n"),
        request("GET", "/v0/topics/absent/work?node=n", None, "accept: text/html"),
        request("GET", "/v0/watch/wid_unknown"),
        request("GET", "/v0/topics/absent/diff"),
        request("PATCH", "/v0/topics/a", RECORD),
        request("OPTIONS", "/v0/topics/a"),
        request("HEAD", "/v0/topics/a"),
        request("HEAD", "/v0/health"),
        request("PUT", "/v0/topics/a", b"[]"),
        request("DELETE", "/v0/topics/absent", b"{}"),
        request("POST", "/v0/topics/absent/diff", b"{}", "x-huge: " + "x" * 30_000),
        request("POST", "/v0/topics/absent/diff", b"{}", "X-Twice: 1", "x-twice: 2"),
        request("POST", "/v0/topics/absent/diff", b"{}", "x-empty:", "x-high: \xe4\xff"),
        request("POST", "/v0/topics/absent/diff", b"{}", *[f"x-many-{n}: {n}" for n in range(200)]),
        request("POST", "/v0/topics/absent/diff", b"{}", "cookie: a=b", "referer: http://x/"),
    ],
    ids=lambda one: one[:40].partition(b"\r\n")[0].decode("latin-1"),
)
def test_odd_requests(lanes: Lanes, one: bytes) -> None:
    # Twice on one connection: after an error it goes on.
    answer = lanes.both(send(one, one))
    assert re.match(rb"HTTP/1.1 [245]\d\d ", answer)
    assert b" 500 " not in answer


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: abc\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v0/topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"POST /v0/topics/a HTTP/1.1\r\nhost : x\r\n\r\n",
        b"GET /v0/topics/a\x00b HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        CHUNKED % b"a" + b"zz\r\n",
    ],
    ids=lambda garbage: repr(garbage[:40]),
)
def test_what_is_no_http(lanes: Lanes, garbage: bytes) -> None:
    def talk(connection: RawConnection) -> bytes:
        connection.send(garbage)
        connection.socket.shutdown(1)
        return connection.everything()

    lanes.both(talk)
    # And nobody else notices.
    assert lanes.both(send(request("GET", "/v0/topics/absent"))).startswith(b"HTTP/1.1 404 ")


def test_a_head_without_an_end_is_refused(lanes: Lanes) -> None:
    def talk(connection: RawConnection) -> bytes:
        # The last byte is the one too many: nothing is left unread, so the answer gets through.
        head = b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\nx-long: "
        connection.send(head + b"a" * ((64 << 10) + 1 - len(head)))
        return connection.everything()

    assert lanes.both(talk).startswith(b"HTTP/1.1 431 ")
    assert lanes.both(send(request("GET", "/v0/topics/absent"))).startswith(b"HTTP/1.1 404 ")


def test_requests_in_pieces_of_any_size(lanes: Lanes) -> None:
    name = "/v0/topics/pieces"
    lanes.both(send(request("PUT", name, b"{}")))
    for piece in (1, 2, 3, 7, 50):
        answer = lanes.both(
            send(
                request("POST", name, RECORD),
                request("POST", name + "/diff", b'{"limit":1}'),
                request("GET", name),
                request("GET", "/v0/topics?prefix=pieces"),
                piece=piece,
            )
        )
        assert answer.count(b"HTTP/1.1 200 OK") == 4


@pytest.mark.parametrize("cut", range(1, len(request("POST", "/v0/topics/cut", RECORD)), 6))
def test_a_request_cut_in_two_anywhere(lanes: Lanes, cut: int) -> None:
    whole = request("POST", "/v0/topics/cut", RECORD)

    def talk(connection: RawConnection) -> bytes:
        connection.send(whole[:cut])
        # The pieces must not arrive as one: another connection's answer takes long enough.
        with RawConnection(url_of(connection)) as other:
            other.send(request("GET", "/v0/topics/absent"))
            other.answer()
        connection.send(whole[cut:])
        return b"".join(connection.answer())

    answer = lanes.both(talk)
    assert re.match(rb"HTTP/1.1 20[01] ", answer)


def url_of(connection: RawConnection) -> str:
    host, port = connection.socket.getpeername()
    return f"http://{host}:{port}"


def test_pipelined_requests_are_answered_in_order(lanes: Lanes) -> None:
    name = "/v0/topics/pipeline"
    requests = [
        request("PUT", name, b"{}"),
        request("POST", name, RECORD),
        request("POST", name + "/diff", b'{"from_seq":1,"wait_ms":5}'),
        request("GET", "/v0/topics?prefix=pipeline"),
        request("POST", name, RECORD),
        request("POST", name, b"{"),
        request("HEAD", name),
        request("POST", name + "/diff", b"{}"),
        request("GET", "/nowhere"),
        request("POST", name, RECORD),
        request("GET", name),
    ]

    def talk(connection: RawConnection) -> bytes:
        connection.send(b"".join(requests))
        answers = [connection.answer(has_body=not one.startswith(b"HEAD")) for one in requests]
        return b"\n".join(head + b"\r\n\r\n" + body for head, body in answers)

    answer = lanes.both(talk)
    statuses = [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", answer)]
    assert statuses == [201, 200, 200, 200, 200, 400, 200, 200, 404, 200, 200]
    assert b'"head_seq":3' in answer


def test_many_writes_at_once_on_one_connection(lanes: Lanes) -> None:
    def talk(connection: RawConnection) -> bytes:
        connection.send(request("POST", "/v0/topics/burst", RECORD) * 200)
        return b"".join(body for _, body in (connection.answer() for _ in range(200)))

    seqs = [int(seq) for seq in re.findall(rb'"first_seq":(\d+)', lanes.both(talk))]
    assert seqs == list(range(1, 201))


def test_chunked_bodies(lanes: Lanes) -> None:
    def chunks(*parts: bytes) -> bytes:
        return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"

    whole = CHUNKED % b"chunked" + chunks(RECORD[:5], RECORD[5:6], RECORD[6:])
    answer = lanes.both(send(whole, whole, request("GET", "/v0/topics/chunked")))
    assert answer.count(b"HTTP/1.1 20") == 3
    lanes.both(send(whole, request("POST", "/v0/topics/chunked", RECORD), piece=1))
    lanes.both(send(CHUNKED % b"chunked" + chunks(b"{")))
    with_extension = CHUNKED % b"chunked" + b"18;name=value\r\n%b\r\n0\r\nx-trailer: 1\r\n\r\n" % RECORD
    assert lanes.both(send(with_extension)).startswith(b"HTTP/1.1 200 OK")


def test_expect_continue(lanes: Lanes) -> None:
    head = request("POST", "/v0/topics/expect", RECORD, "expect: 100-continue")[: -len(RECORD)]

    def talk(connection: RawConnection) -> bytes:
        connection.send(head)
        interim, _ = connection.answer()
        connection.send(RECORD)
        return interim + b"|" + b"".join(connection.answer())

    answer = lanes.both(talk)
    assert answer.startswith(b"HTTP/1.1 100 Continue|HTTP/1.1 201 Created")
    # Whoever would be refused need not send anything.
    assert lanes.both(send(head.replace(b"application/json", b"text/plain"))).startswith(b"HTTP/1.1 415 ")


def test_a_media_type_has_no_case(lanes: Lanes) -> None:
    written = request("POST", "/v0/topics/case", RECORD)
    assert lanes.both(send(written.replace(b"application/json", b"Application/JSON"))).startswith(b"HTTP/1.1 201 ")


def until_closed(data: bytes) -> Callable[[RawConnection], bytes]:
    def talk(connection: RawConnection) -> bytes:
        connection.send(data)
        return connection.everything()

    return talk


def test_a_last_request_ends_the_connection(lanes: Lanes) -> None:
    for one in (
        request("POST", "/v0/topics/last", RECORD, "connection: close"),
        request("POST", "/v0/topics/last", RECORD, "Connection: Close"),
        request("GET", "/v0/topics/last", None, "connection: close"),
        request("GET", "/v0/topics?prefix=last", None, "connection: close"),
        request("GET", "/v0/topics/absent", None, "connection: close"),
        request("POST", "/v0/topics/last/diff", b'{"from_seq":2,"wait_ms":1}', "connection: close"),
    ):
        answer = lanes.both(until_closed(one))
        assert answer.count(b"HTTP/1.1") == 1
        assert b"connection: close" in answer


def test_what_comes_behind_a_last_request_is_not_done(lanes: Lanes) -> None:
    last = request("POST", "/v0/topics/behind", RECORD, "connection: close")
    answer = lanes.both(until_closed(last + request("POST", "/v0/topics/behind", RECORD)))
    assert answer.count(b"HTTP/1.1") == 1
    assert b'"head_seq":1,' in lanes.both(send(request("GET", "/v0/topics/behind")))


def test_http_1_0(lanes: Lanes) -> None:
    one = request("POST", "/v0/topics/old", RECORD, version="1.0")
    assert lanes.both(until_closed(one)).count(b"HTTP/1.1 20") == 1
    assert lanes.both(until_closed(request("GET", "/v0/topics/old", version="1.0"))).count(b"HTTP/1.1 200") == 1


def test_a_body_that_is_too_large(lanes: Lanes) -> None:
    large = b'{"records":[{"data":"%b"}]}' % (b"x" * 20_000)

    def talk(connection: RawConnection) -> bytes:
        connection.send(request("POST", "/v0/topics/large", large))
        return b"".join(connection.answer())

    assert lanes.both(talk).startswith(b"HTTP/1.1 413 ")
    assert lanes.both(send(request("GET", "/v0/topics/large"))).startswith(b"HTTP/1.1 404 ")


def test_compressed_answers(lanes: Lanes) -> None:
    lanes.both(send(request("POST", "/v0/topics/packed", b'{"records":[{"data":"%b"}]}' % (b"x" * 5000))))
    for server in (lanes.fast, lanes.asgi):
        with RawConnection(server.url) as connection:
            connection.send(request("POST", "/v0/topics/packed/diff", b"{}", "accept-encoding: br, gzip"))
            head, body = connection.answer()
            assert b"vary: accept-encoding\r\ncontent-encoding: br" in head.lower()
            assert len(body) < 1000


def test_a_long_answer_has_the_same_head_and_body(lanes: Lanes) -> None:
    records = b"[%b]" % b",".join(b"%d" % (number % 10) for number in range(4000))
    lanes.both(send(request("PUT", "/v1/stream/long", records), *[request("POST", "/v1/stream/long", records)] * 9))
    for further in ([], ["accept-encoding: gzip"], ["accept-encoding: zstd"], ["connection: close"]):
        heads = set()
        bodies = set()
        for server in (lanes.fast, lanes.asgi):
            with RawConnection(server.url) as connection:
                connection.send(request("GET", "/v1/stream/long", None, *further))
                head, body = connection.chunked_answer()
                heads.add(frozenset(without_times(head).lower().split(b"\r\n")))
                bodies.add(body)
        assert len(heads) == len(bodies) == 1, heads


def test_a_stream_has_the_same_head(lanes: Lanes) -> None:
    lanes.both(send(request("PUT", "/v0/topics/streamed", b'{"type":"queue"}')))
    last = b"\r\nconnection: close"
    ended: list[bool] = []

    def talk(connection: RawConnection) -> bytes:
        connection.send(request("GET", "/v0/topics/streamed/work?node=n"))
        head = connection.answer()[0]
        ended.append(last in head)
        return head.replace(last, b"")

    head = lanes.both(talk)
    # In the fast lane the connection ends with the stream: whoever would use it again has to know.
    assert ended == [True, False]
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/event-stream; charset=utf-8" in head
