"""Workers of a queue in a separate process: ``python -m bench.peers_work FACE PORT LOG COUNT AT_A_TIME``.

Each worker claims ``AT_A_TIME`` jobs, acknowledges them and claims again, until no jobs are left. A worker is a
generator that yields requests and receives whole answers; one loop drives all workers.
"""

from __future__ import annotations

import re
import select
import sys
import time
from collections.abc import Callable, Generator
from typing import NamedTuple

from bench import peers_nats, peers_postgres, peers_redis
from bench.peers_line import ANSWER_SECONDS, Line, Request, http_complete
from bench.topics_load import SEQ, Worked, raise_file_limit, tell
from bench.topics_server import request_bytes

#: The seconds before a request to a busy server is repeated.
PAUSE_SECONDS = 0.05
#: The number of lines before the entries in the answer to a claim from Redis.
CLAIM_LINES = 5
ENTRY_ID = re.compile(rb"\r\n([0-9]+-[0-9]+)\r\n")
#: In the answer to an acknowledgement that has also claimed jobs.
CLAIMED = b'"claimed":'
REPLY = re.compile(rb"(\$JS\.ACK\.[^ ]+) ")

#: Yields requests and receives answers. It counts its jobs in the list of jobs, at its number.
Worker = Generator[Request, bytes, None]


class Shift(NamedTuple):
    """The arguments of a worker: the log, its number, the jobs per claim, and the list to count them in."""

    log: str
    number: int
    at_a_time: int
    jobs: list[int]

    def done(self, jobs: int) -> None:
        self.jobs[self.number] += jobs


def topics(shift: Shift) -> Worker:
    """An acknowledgement claims the next jobs. Other servers of the protocol ignore that, and get a claim of its
    own."""
    node = b"worker-%d" % shift.number
    claim = _posted(f"/v0/topics/{shift.log}/claim", b'{"node":"%b","max":%d}' % (node, shift.at_a_time))
    answer = yield from _patiently(claim)
    while seqs := SEQ.findall(answer):
        body = b'{"node":"%b","seqs":[%b],"claim":{"max":%d}}' % (node, b",".join(seqs), shift.at_a_time)
        answer = yield from _patiently(_posted(f"/v0/topics/{shift.log}/ack", body))
        shift.done(len(seqs))
        if CLAIMED not in answer:
            answer = yield from _patiently(claim)


def _posted(path: str, body: bytes) -> Request:
    return Request(request_bytes("POST", path, body), http_complete)


def _patiently(request: Request) -> Generator[Request, bytes, bytes]:
    while (answer := (yield request))[9:12] == b"429":
        time.sleep(PAUSE_SECONDS)
    if answer[9:12] != b"200":
        raise RuntimeError(f"a worker was refused: {answer[:300]!r}")
    return answer


def redis(shift: Shift) -> Worker:
    log, group, me = shift.log.encode(), peers_redis.GROUP, b"worker-%d" % shift.number
    words = b"XREADGROUP", b"GROUP", group, me, b"COUNT", b"%d" % shift.at_a_time, b"STREAMS", log, b">"
    claim = Request(peers_redis.command(*words), _claim_is_complete)
    while True:
        ids = ENTRY_ID.findall((yield claim))
        if not ids:
            return
        yield peers_redis.lines(1, peers_redis.command(b"XACK", log, group, *ids))
        shift.done(len(ids))


def _claim_is_complete(data: bytearray) -> bool:
    if data.startswith((b"*-1\r\n", b"-")):
        return True
    head = data.split(b"\r\n", CLAIM_LINES)
    if len(head) <= CLAIM_LINES:
        return False
    return data.count(b"\r\n") >= CLAIM_LINES + peers_redis.ENTRY_LINES * int(head[CLAIM_LINES - 1][1:])


def nats(shift: Shift) -> Worker:
    """An acknowledgement has no answer, so it is sent with the next claim, as NATS's own clients do."""
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{shift.log}.{peers_nats.CONSUMER}"
    claim = peers_nats.publish(subject, b'{"batch":%d,"no_wait":true}' % shift.at_a_time)

    def is_complete(data: bytearray) -> bool:
        arrived = data.count(peers_nats.DELIVERED)
        return data.endswith(b"\r\n") and (arrived >= shift.at_a_time or b"NATS/1.0 4" in data)

    acked = b""
    while True:
        replies = REPLY.findall((yield Request(acked + claim, is_complete)))
        if not replies:
            return
        acked = b"".join([b"PUB %b 4\r\n+ACK\r\n" % reply for reply in replies])
        shift.done(len(replies))


def postgres(shift: Shift) -> Worker:
    """A claim is a transaction that has deleted the rows, an acknowledgement is its commit."""
    start = peers_postgres.simple("begin").content
    claim = peers_postgres.execute(b"claim", b"%d" % shift.at_a_time).content
    claimed = Request(start + claim, lambda data: data.endswith(peers_postgres.ENDINGS), 1, b"Z\0\0\0\5T", 2)
    while True:
        rows = (yield claimed).count(peers_postgres.ROW)
        yield peers_postgres.simple("commit")
        if not rows:
            return
        shift.done(rows)


def _postgres_line(port: int, log: str) -> Line:
    chosen = f"select seq from {log} order by seq for update skip locked limit $1"
    statement = f"claim(bigint) as delete from {log} where seq = any(array({chosen})) returning seq, data"
    return peers_postgres.connected(port, "disk", statement)


class Face(NamedTuple):
    connect: Callable[[int, str], Line]
    work: Callable[[Shift], Worker]


FACES = {
    "topics": Face(lambda port, log: Line(port, lambda answer: None), topics),
    "redis": Face(lambda port, log: peers_redis.RedisLine(port), redis),
    "nats": Face(lambda port, log: peers_nats.NatsLine(port), nats),
    "postgres": Face(_postgres_line, postgres),
}


def work(face: Face, port: int, log: str, count: int, at_a_time: int) -> Worked:
    jobs = [0] * count
    workers = {face.connect(port, log): face.work(Shift(log, number, at_a_time, jobs)) for number in range(count)}
    used, began = time.process_time(), time.perf_counter()
    last = began
    for line, worker in workers.items():
        line.send(next(worker))
    while workers:
        ready, _, _ = select.select(list(workers), (), (), ANSWER_SECONDS)
        if not ready:
            raise RuntimeError("the workers got no answer in time")
        for line in ready:
            before = sum(jobs)
            try:
                line.send(workers[line].send(line.receive()))
            except StopIteration:
                del workers[line]
            if sum(jobs) != before:
                last = time.perf_counter()
    busy = (time.process_time() - used) / (time.perf_counter() - began)
    return Worked(jobs, last - began, 0, busy)


if __name__ == "__main__":
    _, face_name, port_text, log_name, count_text, at_a_time_text = sys.argv
    raise_file_limit()
    tell(work(FACES[face_name], int(port_text), log_name, int(count_text), int(at_a_time_text)))
