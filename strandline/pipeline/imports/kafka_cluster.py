"""Asks a Kafka cluster for its partitions and offsets, with the client in Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from strandline.pipeline.imports.staging import ImportFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
#: The prefix of options for the client, as in Spark.
CLIENT = "kafka."
ISOLATION = f"{CLIENT}isolation.level"
#: How long the client looks for a broker. Its own default is a minute for every request.
TIMEOUTS = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}


class MissingPackage(Exception):
    """Spark lacks a package. The message says how to get it."""


def missing(what: str, package: str, spark: SparkSession) -> MissingPackage:
    return MissingPackage(
        f"Spark has no {what}. Add it with --packages {package}:{spark.version} if a Maven repository is "
        "reachable, or with --jar FILE for the package and each of its dependencies"
    )


class TopicPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, its first offset, and the offset of the next message. ``topic_id`` differs if the topic was deleted
    and created again."""

    topic: str
    partition: int
    topic_id: str
    earliest: int
    latest: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


class KafkaCluster:
    """A cluster. ``id`` stays the same whatever brokers are named. Methods raise ImportFailed."""

    def __init__(self, jvm: Any, admin: Any, *, is_committed: bool) -> None:
        self._jvm = jvm
        self._admin = admin
        self._is_committed = is_committed
        self.id: str = self._result(admin.describeCluster().clusterId())

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """All partitions of the topics, by topic and number. Without uncommitted messages, if the reader leaves them
        out as well."""
        names = self._jvm.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        described = self._admin.describeTopics(names).topicNameValues()
        ids: dict[str, str] = {}
        keys: dict[tuple[str, int], Any] = {}
        for topic in sorted(set(topics)):
            found = self._result(described.get(topic), f"topic {topic!r}: ")
            ids[topic] = found.topicId().toString()
            for one in found.partitions():
                number = one.partition()
                keys[topic, number] = self._jvm.org.apache.kafka.common.TopicPartition(topic, number)
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        earliest, latest = self._offsets(keys, spec.earliest()), self._offsets(keys, spec.latest())
        return [
            TopicPartition(
                topic=topic, partition=number, topic_id=ids[topic],
                earliest=earliest[topic, number], latest=latest[topic, number],
            )
            for topic, number in sorted(keys)
        ]  # fmt: skip

    def _offsets(self, keys: Mapping[tuple[str, int], Any], spec: Any) -> dict[tuple[str, int], int]:
        wanted = self._jvm.java.util.HashMap()
        for key in keys.values():
            wanted.put(key, spec)
        levels = self._jvm.org.apache.kafka.common.IsolationLevel
        level = levels.READ_COMMITTED if self._is_committed else levels.READ_UNCOMMITTED
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        found = self._result(self._admin.listOffsets(wanted, options).all())
        return {place: found.get(key).offset() for place, key in keys.items()}

    def _result(self, future: Any, about: str = "") -> Any:
        with _failures(about):
            return future.get()


@contextmanager
def open_cluster(spark: SparkSession, servers: str, options: Mapping[str, str]) -> Iterator[KafkaCluster]:
    """Connect to a cluster. ``options`` are those of Spark's connector. Raises MissingPackage, ImportFailed."""
    jvm: Any = spark._jvm
    admin = jvm.org.apache.kafka.clients.admin.Admin
    if type(admin).__name__ == "JavaPackage":
        raise missing("Kafka connector", PACKAGE, spark)
    properties = jvm.java.util.Properties()
    given = {name.removeprefix(CLIENT): value for name, value in options.items() if name.startswith(CLIENT)}
    for name, value in {**TIMEOUTS, **given, "bootstrap.servers": servers}.items():
        properties.setProperty(name, value)
    with _failures():
        client = admin.create(properties)
    try:
        yield KafkaCluster(jvm, client, is_committed=options.get(ISOLATION) != "read_uncommitted")
    finally:
        client.close()


@contextmanager
def _failures(about: str = "") -> Iterator[None]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        kind, message = java_cause(error)
        if kind == "UnknownTopicOrPartitionException":
            message = "the cluster has no such topic"
        raise ImportFailed(f"Kafka: {about}{message}") from None


def java_cause(error: Any) -> tuple[str, str]:
    """The class and the message of the exception that an error of Java started with."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    kind: str = cause.getClass().getSimpleName()
    return kind, cause.getMessage() or kind
