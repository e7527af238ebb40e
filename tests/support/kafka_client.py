"""A client of a Kafka broker for tests: the published one, in the JVM of a Spark session that has the connector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import JavaMember

from support.maven_jars import resolve
from support.topics_client import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The second one is a dependency of the first that is not published in every version everywhere.
CONNECTOR = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
]


class Sent(NamedTuple):
    """A message to send."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    ts: int | None = None


class KafkaClient:
    def __init__(self, spark: SparkSession, server: str) -> None:
        """``spark`` gets the connector, if it has none yet."""
        for jar in resolve(CONNECTOR, without_spark=True):
            spark.sql(f"ADD JAR '{jar}'")
        self.server = server
        self._jvm: Any = spark._jvm
        # There is a method of the same name that is not static, so it cannot be reached through the class.
        self._before_offset = JavaMember(
            "beforeOffset",
            None,
            "z:org.apache.kafka.clients.admin.RecordsToDelete",
            spark.sparkContext._gateway._gateway_client,  # type: ignore[union-attr]
        )
        self._admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(self._properties())
        self._producer = self._producer_with()

    def close(self) -> None:
        self._producer.close()
        self._admin.close()

    def create(self, topic: str, partitions: int = 1) -> None:
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1)
        self._admin.createTopics(self._list(new)).all().get()

    def delete(self, topic: str) -> None:
        self._admin.deleteTopics(self._list(topic)).all().get()

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        """Remove the messages before an offset, as retention does."""
        place = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        wanted = self._jvm.java.util.HashMap()
        wanted.put(place, self._before_offset(offset))
        self._admin.deleteRecords(wanted).all().get()

    def send(self, topic: str, *messages: Sent) -> None:
        self._send(self._producer, topic, messages)
        self._producer.flush()

    def send_and_abort(self, topic: str, *messages: Sent) -> None:
        """Send to partition 0 in a transaction that is aborted. The end of a transaction has an offset as well."""
        producer = self._producer_with(transactional_id="aborted")
        producer.initTransactions()
        producer.beginTransaction()
        self._send(producer, topic, messages)
        producer.flush()
        producer.abortTransaction()
        producer.close()
        # The broker writes the end a moment later. Until then, readers of committed messages wait there.
        levels = self._jvm.org.apache.kafka.common.IsolationLevel
        eventually(lambda: self._end(topic, levels.READ_COMMITTED) == self._end(topic, levels.READ_UNCOMMITTED))

    def _end(self, topic: str, level: Any) -> int:
        place = self._jvm.org.apache.kafka.common.TopicPartition(topic, 0)
        wanted = self._jvm.java.util.HashMap()
        wanted.put(place, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        end: int = self._admin.listOffsets(wanted, options).all().get().get(place).offset()
        return end

    def _send(self, producer: Any, topic: str, messages: Iterable[Sent]) -> None:
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        for sent in messages:
            headers = self._list(
                *(self._jvm.org.apache.kafka.common.header.internals.RecordHeader(*header) for header in sent.headers)
            )
            producer.send(record(topic, sent.partition, sent.ts, sent.key, sent.value, headers))

    def _producer_with(self, **options: str) -> Any:
        properties = self._properties()
        for name, value in options.items():
            properties.setProperty(name.replace("_", "."), value)
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        properties.setProperty("key.serializer", serializer)
        properties.setProperty("value.serializer", serializer)
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)

    def _properties(self) -> Any:
        properties = self._jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", self.server)
        return properties

    def _list(self, *members: Any) -> Any:
        found = self._jvm.java.util.ArrayList()
        for member in members:
            found.add(member)
        return found
