"""Out of Kafka and into Kafka, with a real broker and Spark's connector."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import app
from support.kafka_broker import kafka_broker
from support.kafka_client import CONNECTOR, KafkaClient, Sent
from support.maven_jars import resolve
from support.server_process import ServerProcess
from support.topics_client import Client, eventually
from typer.testing import CliRunner

from strandline.pipeline.imports.kafka_cluster import MissingPackage
from strandline.pipeline.imports.value_decoder import ValueDecoder

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

TIME = 1_700_000_000_000
AVRO = ["org.apache.spark:spark-avro_2.13:4.1.1"]
NAMES = (f"orders-{number}" for number in count())


def run(*arguments: object) -> tuple[int, str, str]:
    """In this process, and on the session that it has."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


# The tests that need a session without the packages come first: the others share it, and add them.


def test_without_the_connector_import_and_export_say_what_to_add(
    spark: SparkSession, server: ServerProcess, client: Client, topic: str
) -> None:
    client.call("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, status=201)
    imported = run("import", "127.0.0.1:9", "--format", "kafka", "--topic", "t", "--log", topic, "--url", server.url)
    exported = run("export", topic, "--url", server.url, "--to", "kafka://127.0.0.1:9/t")
    for code, _, said in (imported, exported):
        assert code == 1
        assert f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}" in said


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(broker: str, spark: SparkSession) -> Iterator[KafkaClient]:
    client = KafkaClient(spark, broker)
    yield client
    client.close()


class Importer:
    """Imports a new topic into a new log."""

    def __init__(self, kafka: KafkaClient, client: Client, partitions: int) -> None:
        self.topic = next(NAMES)
        self.log = f"imported-{self.topic}"
        self._kafka = kafka
        self._client = client
        kafka.create(self.topic, partitions)

    def send(self, *messages: Sent) -> None:
        self._kafka.send(self.topic, *messages)

    def arguments(self, *more: object) -> list[str]:
        return [
            "import", self._kafka.server, "--format", "kafka", "--topic", self.topic, "--log", self.log,
            "--url", self._client.url, "--json", *map(str, more),
        ]  # fmt: skip

    def failure(self, *more: object) -> str:
        code, _, said = run(*self.arguments(*more))
        assert code
        return said

    def run(self, *more: object) -> dict[str, Any]:
        code, said, problems = run(*self.arguments(*more))
        assert said, problems
        found: dict[str, Any] = json.loads(said)
        assert code == found["stopped"]
        return found

    def records(self, log: str = "") -> list[dict[str, Any]]:
        body = {"from_seq": 0, "limit": 1000, "include_tags": True}
        found: list[dict[str, Any]] = self._client.call("POST", f"/v0/topics/{log or self.log}/diff", body)["records"]
        return found

    def payloads(self, log: str = "") -> list[Any]:
        return [record["data"] for record in self.records(log)]


def test_messages_become_records_with_key_headers_and_time(kafka: KafkaClient, client: Client) -> None:
    importer = Importer(kafka, client, 1)
    importer.send(
        Sent(b'{"n": 1}', b"ann", headers=(("trace", b"a1"), ("bytes", b"\xff"), ("trace", b"a2")), ts=TIME),
        Sent(None, b"\xff\x00", ts=TIME + 5),
        Sent(b"2", b"base64:AAEC", headers=(("none", None),), ts=TIME + 9),
    )
    assert importer.run("--ts-column", "timestamp")["records"] == 3
    meta = {"trace": ["a1", "a2"], "bytes": {"base64": "/w=="}}
    found = [(one["$ts"], one["data"], one["$tag"], one.get("meta", one.get("$meta"))) for one in importer.records()]
    assert found == [
        (TIME, {"n": 1}, "ann", meta),
        (TIME + 5, None, "base64:/wA=", None),
        (TIME + 9, 2, "base64:YmFzZTY0OkFBRUM=", {"none": None}),
    ]


def test_an_import_continues_with_what_is_new(kafka: KafkaClient, client: Client) -> None:
    importer = Importer(kafka, client, 2)
    importer.send(*(Sent(b"%d" % number, partition=number % 2) for number in range(6)))
    assert importer.run()["records"] == 6
    assert importer.run()["records"] == 0
    kafka.send_and_abort(importer.topic, Sent(b'"aborted"'))
    importer.send(Sent(b"6"), Sent(b"no JSON", b"ann", headers=(("a", b"b"),)), Sent(b"8"), Sent(b"7", partition=1))
    stopped = importer.run()
    assert (stopped["stopped"], stopped["records"], stopped["bad"]) == (True, 0, 1)
    # The aborted message and the end of its transaction have offsets as well.
    assert [(place["path"], place["number"]) for place in stopped["places"]] == [(f"{importer.topic}/0", 6)]
    assert len(importer.payloads()) == 6
    letters = f"{importer.log}-dead"
    done = importer.run("--dead-letters", letters)
    assert (done["records"], done["bad"]) == (3, 1)
    payloads = importer.payloads()
    assert [payload for payload in payloads if payload % 2 == 0] == [0, 2, 4, 6, 8]
    assert [payload for payload in payloads if payload % 2] == [1, 3, 5, 7]
    (letter,) = importer.payloads(letters)
    assert letter["reason"].startswith("not valid JSON")
    del letter["reason"], letter["ts"]
    assert letter == {
        "topic": importer.topic, "partition": 0, "offset": 6, "key": "ann", "value": "no JSON", "headers": [["a", "b"]]
    }  # fmt: skip
    # Another name imports everything once more, here with a log for each partition.
    importer.log = f"{importer.log}-{{partition}}"
    again = importer.run("--bad", "skip", "--job", "again")
    assert (again["records"], again["bad"]) == (9, 1)
    assert importer.payloads(importer.log.replace("{partition}", "1")) == [1, 3, 5, 7]


def test_messages_that_the_broker_lost_are_reported(kafka: KafkaClient, client: Client) -> None:
    importer = Importer(kafka, client, 1)
    importer.send(*(Sent(b"%d" % number) for number in range(4)))
    assert importer.run("--option", f'startingOffsets={{"{importer.topic}":{{"0":1}}}}')["records"] == 3
    importer.send(*(Sent(b"%d" % number) for number in range(4, 9)))
    kafka.remove_before(importer.topic, 0, 6)
    assert "no longer has the offsets 4 to 5" in importer.failure()
    done = importer.run("--lost", "skip")
    assert (done["records"], done["lost"]) == (3, 2)
    assert importer.payloads() == [1, 2, 3, 6, 7, 8]
    kafka.delete(importer.topic)
    eventually(lambda: "no such topic" in importer.failure())
    kafka.create(importer.topic)
    importer.send(*(Sent(b'"new"') for _ in range(12)))
    assert "deleted and created again" in importer.failure()
    assert importer.run("--job", "new")["records"] == 12


def test_values_may_be_bytes_or_text(kafka: KafkaClient, client: Client) -> None:
    importer = Importer(kafka, client, 1)
    importer.send(Sent(b"\xff\x00"), Sent(None))
    assert "create it as a stream" in importer.failure("--value-format", "bytes")
    assert importer.run("--value-format", "base64")["records"] == 2
    assert importer.payloads() == ["/wA=", None]
    assert "takes JSON" in importer.failure("--value-format", "bytes")
    importer.log = f"stream-{importer.topic}"
    path = f"/v1/stream/{importer.log}"
    client.request("PUT", path, headers={"content-type": "application/octet-stream"}).raise_for_status()
    assert importer.run()["records"] == 2
    assert client.request("GET", path, params={"offset": "-1"}).content == b"\xff\x00"
    importer.log = f"text-{importer.topic}"
    text = importer.run("--value-format", "text", "--bad", "skip")
    assert (text["records"], text["bad"]) == (1, 1)


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "cents", "type": ["null", "int"]},
        {"name": "on", "type": ["null", {"type": "record", "name": "On", "fields": [{"name": "n", "type": "long"}]}]},
    ],
}


def test_avro_is_decoded_by_spark(spark: SparkSession, kafka: KafkaClient, client: Client, tmp_path: Path) -> None:
    importer = Importer(kafka, client, 1)
    header = b"\x00\x00\x00\x00\x07"
    importer.send(
        Sent(header + b"\x08book\x02\xc4\x13\x02\x0e"), Sent(header + b"\x06pen\x00\x00"), Sent(None), Sent(b"no Avro")
    )
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(ORDER))
    options = ("--value-format", "avro", "--schema", schema, "--skip-bytes", 5)
    assert f"org.apache.spark:spark-avro_2.13:{spark.version}" in importer.failure(*options)
    for jar in resolve(AVRO, without_spark=True):
        spark.sql(f"ADD JAR '{jar}'")
    stopped = importer.run(*options)
    assert [(place["number"], place["why"]) for place in stopped["places"]] == [
        (3, "the value does not match the Avro schema")
    ]
    assert importer.run(*options, "--bad", "skip")["records"] == 3
    assert importer.payloads() == [
        {"item": "book", "cents": 1250, "on": {"n": 7}},
        {"item": "pen", "cents": None, "on": None},
        None,
    ]
    schema.write_text('{"type":"record","name":"Order"}')
    assert "Spark cannot use the Avro schema" in importer.failure(*options)


def test_protobuf_needs_its_package(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"",)], "value binary")
    with pytest.raises(MissingPackage, match=f"org.apache.spark:spark-protobuf_2.13:{spark.version}"):
        ValueDecoder(format="protobuf", schema=b"descriptors", message="shop.Order").decoded(frame)


def test_protobuf_values_without_any_member_are_invalid(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a function in place of that of the package which does the same with invalid values: a row of nulls."""
    from pyspark.sql.functions import from_json

    def decode(value: Column, message: str, **more: Any) -> Column:
        assert (message, more["binaryDescriptorSet"]) == ("shop.Order", b"descriptors")
        assert more["options"]["mode"] == "PERMISSIVE"
        return from_json(value.cast("string"), "item string, cents int")

    monkeypatch.setattr("pyspark.sql.protobuf.functions.from_protobuf", decode)
    decoder = ValueDecoder(format="protobuf", schema=b"descriptors", message="shop.Order", skip_bytes=1)
    values = [b'-{"item":"book"}', b"-", b"-no", None]
    frame = decoder.decoded(spark.createDataFrame([(value,) for value in values], "value binary"))
    found = [row.decoded for row in frame.collect()]
    assert [None if one is None else json.loads(one) for one in found] == [{"value": {"item": "book"}}, {}, None, None]


def test_an_import_that_is_killed_continues(kafka: KafkaClient, client: Client, tmp_path: Path) -> None:
    importer = Importer(kafka, client, 2)
    total = 1_000
    # Every message has a time of its own, and so is an append of its own: it takes a while.
    importer.send(*(Sent(b"%d" % number, partition=number % 2, ts=TIME + number) for number in range(total)))
    jars = [option for jar in resolve(CONNECTOR, without_spark=True) for option in ("--jar", str(jar))]
    command = [sys.executable, "-m", "strandline.cli.main", *importer.arguments("--ts-column", "timestamp", *jars)]
    running = subprocess.Popen(command, start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)})

    def head() -> int:
        answer = client.request("GET", f"/v0/topics/{importer.log}")
        return int(answer.json()["head_seq"]) if answer.is_success else 0

    try:
        while running.poll() is None and not 0 < head() < total:
            time.sleep(0.01)
    finally:
        kill_session(running.pid)
    assert running.wait() == -signal.SIGKILL
    there = head()
    assert 0 < there < total
    # The server may have had one more request of each task.
    assert 0 < importer.run("--ts-column", "timestamp")["records"] <= total - there
    found = importer.payloads()
    for partition in (0, 1):
        assert [number for number in found if number % 2 == partition] == list(range(partition, total, 2))


def kill_session(leader: int) -> None:
    """Kill the processes of a session. The Python workers of Spark have a process group of their own."""
    for entry in Path("/proc").iterdir():
        with suppress(ProcessLookupError, ValueError):
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)


def test_an_export_can_be_imported_again(kafka: KafkaClient, client: Client, tmp_path: Path) -> None:
    importer = Importer(kafka, client, 1)
    source = f"source-{importer.topic}"
    first = [
        {"data": {"n": 1}, "tag": "ann", "node": "till", "meta": {"trace": "a1"}},
        {"data": None, "tag": "base64:/wA=", "meta": {"n": 1}},
    ]
    client.call("POST", f"/v0/topics/{source}", {"records": first}, status=201)
    arguments = ["export", source, "--url", client.url, "--to", f"kafka://{kafka.server}/{importer.topic}", "--json"]

    def export(*more: str) -> dict[str, Any]:
        code, said, problems = run(*arguments, *more)
        assert code == 0, problems
        found: dict[str, Any] = json.loads(said)
        return found

    assert export("--consumer", "to-kafka")["records"] == 2
    assert export("--consumer", "to-kafka")["records"] == 0
    client.call("POST", f"/v0/topics/{source}", {"records": [{"data": "last"}]})
    assert export("--consumer", "to-kafka") == {
        "target": f"kafka://{kafka.server}/{importer.topic}", "records": 1, "through": {source: 3}, "lost": 0
    }  # fmt: skip
    # By path everything is imported by the driver, and everything of the records is there again.
    other = tmp_path / "other"
    imported = [*importer.arguments("--ts-column", "timestamp", "--bad", "skip")]
    place = imported.index("--url")
    imported[place : place + 2] = ["--data", str(other)]
    assert json.loads(run(*imported)[1])["records"] == 3
    assert json.loads(run(*imported)[1])["records"] == 0
    assert importer.run("--ts-column", "timestamp")["records"] == 3
    assert importer.records() == importer.records(source)
    # Without a consumer, everything is sent again.
    assert export()["records"] == 3
    assert importer.run()["records"] == 3
