"""Kafka as one of the sides, in Kafka's own protocol: one broker in KRaft mode, from the published jars.

A log is a topic with one partition. A broker acknowledges a record when the kernel has it, and leaves the flush to the
kernel; with ``flush.messages=1`` it flushes before it acknowledges. Reads return whole batches as they were written, so
there is no page of exactly a hundred records to compare.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import repeat
from pathlib import Path

from bench.measure import Sample
from bench.peers import Installation, free_port
from bench.peers_daemon import daemon, program
from bench.peers_line import Line, Request, drive
from bench.peers_sides import CLIENTS, Durability, Log, Peer, Side, Workload, new_log

NAME = "Kafka"
VERSION = "3.9.1"
HOW: Mapping[Durability, str] = {"disk": "acks=all, flushed by the kernel", "fsync": "acks=all, flush.messages=1"}
DOES: frozenset[Workload] = frozenset({"singles", "one", "batches", "catch-up", "growth"})
#: The options of Java in the start script that comes with Kafka.
JAVA = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
#: How much a consumer requests of a partition by default.
FETCH_BYTES = 1 << 20
WAIT_MS = 30_000
PRODUCE, FETCH, CREATE, DELETE = (0, 3), (1, 4), (19, 4), (20, 3)
#: The bytes of a batch of records before and after its length, and where its fields are.
BATCH_HEAD = 12
LAST_DELTA_AT = 23

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
#: What ``kafka-storage format`` writes.
_FORMAT = "version=1\nnode.id=1\ncluster.id=c3RyYW5kbGluZS1iZW5jaA\ndirectory.id=c3RyYW5kbGluZS1kaXIxMQ\n"


# --- the protocol ----------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def request(call: tuple[int, int], body: bytes) -> bytes:
    """A request with this key and version, without the name of a client."""
    content = struct.pack(">hhih", *call, 0, -1) + body
    return struct.pack(">i", len(content)) + content


def complete(data: bytearray) -> bool:
    return len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4])


def crc32c(data: bytes) -> int:
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@cache
def _crc_table() -> tuple[int, ...]:
    made = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        made.append(value)
    return tuple(made)


def varint(value: int) -> bytes:
    rest, made = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*made, rest])


@cache
def batch(records: tuple[bytes, ...]) -> bytes:
    """A batch of records without keys, in format 2. The broker assigns their offsets."""
    made = []
    for number, value in enumerate(records):
        one = b"\0" + varint(0) + varint(number) + varint(-1) + varint(len(value)) + value + varint(0)
        made.append(varint(len(one)) + one)
    last, now = len(records) - 1, int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, last, now, now, -1, -1, -1, len(records)) + b"".join(made)
    rest = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


class KafkaLine(Line):
    def __init__(self, port: int) -> None:
        super().__init__(port, lambda _: None)


def _produced(answer: bytes) -> None:
    at = 12 + 2 + int.from_bytes(answer[12:14]) + 4 + 4
    _refuse(int.from_bytes(answer[at : at + 2], signed=True))


def _refuse(code: int) -> None:
    if code:
        raise RuntimeError(f"kafka: error {code}")


class ProducingLine(Line):
    def __init__(self, port: int) -> None:
        super().__init__(port, _produced)


def batches(answer: bytes) -> bytes:
    """The batches in the answer to a fetch of one partition."""
    at = 16 + 2 + int.from_bytes(answer[16:18]) + 4 + 4
    _refuse(int.from_bytes(answer[at : at + 2], signed=True))
    aborted = max(int.from_bytes(answer[at + 18 : at + 22], signed=True), 0)
    at += 22 + 16 * aborted
    return answer[at + 4 : at + 4 + int.from_bytes(answer[at : at + 4])]


def counted(content: bytes) -> int:
    """The records in whole batches. The last batch of an answer may be incomplete."""
    at = found = 0
    while at + BATCH_HEAD <= len(content):
        end = at + BATCH_HEAD + int.from_bytes(content[at + 8 : at + BATCH_HEAD])
        if end > len(content):
            break
        found += int.from_bytes(content[at + LAST_DELTA_AT : at + LAST_DELTA_AT + 4]) + 1
        at = end
    return found


# --- the side --------------------------------------------------------------------------------------------------------


class Kafka:
    name = NAME
    face = "kafka"
    does = DOES
    classes: Mapping[Durability, str] = {durability: f"{VERSION}, {how}" for durability, how in HOW.items()}

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._pid = pid

    def pid(self, durability: Durability) -> int:
        return self._pid

    def port(self, log: Log) -> int:
        return self._port

    def create(self, durability: Durability, *, queue: bool = False) -> Log:
        log = new_log(durability)
        config = text("flush.messages") + text("1") if durability == "fsync" else b""
        body = struct.pack(">i", 1) + text(log.name) + struct.pack(">ihii", 1, 1, 0, 1 if config else 0) + config
        with KafkaLine(self._port) as line:
            answer = line.ask(Request(request(CREATE, body + struct.pack(">i?", WAIT_MS, False)), complete))
            at = 16 + 2 + int.from_bytes(answer[16:18])
            _refuse(int.from_bytes(answer[at : at + 2], signed=True))
        self._wait_for(log)
        return log

    def _wait_for(self, log: Log) -> None:
        """A topic has a leader a moment after it was created."""
        for _ in range(1000):
            try:
                with KafkaLine(self._port) as line:
                    batches(line.ask(Request(self._fetch(log, 0, wait=0), complete)))
                return
            except RuntimeError:
                time.sleep(0.01)
        raise RuntimeError(f"kafka: {log.name} has no leader")

    def drop(self, log: Log) -> None:
        with KafkaLine(self._port) as line:
            body = struct.pack(">i", 1) + text(log.name) + struct.pack(">i", WAIT_MS)
            line.ask(Request(request(DELETE, body), complete))

    def connect(self, log: Log) -> Line:
        return ProducingLine(self._port)

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        """One batch, acknowledged."""
        content = batch(tuple(records))
        body = struct.pack(">hhii", -1, -1, WAIT_MS, 1) + text(log.name) + struct.pack(">iii", 1, 0, len(content))
        return Request(request(PRODUCE, body + content), complete, len(records))

    fill = append

    def announce(self, log: Log, record: bytes) -> Request:
        return self.append(log, [record])

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        return drive(lambda: self.connect(log), CLIENTS, repeat(self.append(log, [record])), seconds)

    def page(self, log: Log, after: int, limit: int) -> Request:
        return Request(self._fetch(log, after), complete, limit)

    def _fetch(self, log: Log, offset: int, *, wait: int = WAIT_MS) -> bytes:
        body = struct.pack(">iiiibi", -1, wait, 1, 50 * FETCH_BYTES, 0, 1) + text(log.name)
        return request(FETCH, body + struct.pack(">iiqi", 1, 0, offset, FETCH_BYTES))

    def catch_up(self, log: Log, records: int) -> Sample:
        """With the request sizes of a consumer's defaults."""
        with KafkaLine(self._port) as line:
            began, read = time.perf_counter(), 0
            while read < records:
                found = counted(batches(line.ask(Request(self._fetch(log, read), complete))))
                if not found:
                    raise RuntimeError(f"{NAME}: only {read} records of {records} were read")
                read += found
            return Sample(read, time.perf_counter() - began)


# --- the broker ------------------------------------------------------------------------------------------------------


@contextmanager
def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    if not (logs / "meta.properties").exists():
        (logs / "meta.properties").write_text(_FORMAT)
    # The members of the quorum are in the settings, so a broker keeps the port of its controller.
    ports = directory / "controller"
    if not ports.exists():
        ports.write_text(str(free_port()))
    port = free_port()
    settings = directory / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=ports.read_text(), logs=logs))
    classes = os.pathsep.join(map(str, sorted(PACKAGES.place.glob("jars/*.jar"))))
    command = ["java", *JAVA, "-cp", classes, "kafka.Kafka", str(settings)]
    with daemon(command, partial(_is_ready, port)) as pid:
        yield Kafka(port, pid)


def _is_ready(port: int) -> bool:
    """Whether the broker answers and is not fenced any more: a topic can be described."""
    with KafkaLine(port) as line:
        # Metadata of no topic: the answer lists the brokers.
        answer = line.ask(Request(request((3, 1), struct.pack(">i", 0)), complete))
        return int.from_bytes(answer[8:12]) == 1


PACKAGES = Installation.of("kafka_packages")


@cache
def lacking() -> str:
    if program("java") is None:
        return "java is not installed (Debian: apt-get install default-jre-headless)"
    return PACKAGES.install_maven()


PEER = Peer(NAME, lacking, serving)
