"""Decodes the values of messages with Spark's functions for Avro and Protobuf."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import msgspec

from strandline.lake.reporter import describe
from strandline.pipeline.imports.files import BadShape
from strandline.pipeline.imports.kafka_cluster import java_cause, missing
from strandline.pipeline.imports.messages import DECODED, ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PACKAGES = {
    "avro": ("Avro decoder", "org.apache.spark:spark-avro_2.13"),
    "protobuf": ("Protobuf decoder", "org.apache.spark:spark-protobuf_2.13"),
}
#: Without the package, Spark raises an error with this ending.
_NOT_LOADED = "_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE"
#: An invalid value is a row of nulls for Spark. Two records around the schema of the user, which take no bytes in Avro,
#: distinguish it from a valid value that is null.
_WRAPPED = (
    b'{"type":"record","name":"StrandlineMessage","fields":[{"name":"message","type":'
    b'{"type":"record","name":"StrandlineValue","fields":[{"name":"value","type":%s}]}}]}'
)


class ValueDecoder(msgspec.Struct, frozen=True, kw_only=True):
    """How values are encoded. ``schema`` is the content of a file: an Avro schema, or a Protobuf descriptor set, in
    which ``message`` names the message. ``skip_bytes`` precede the content of each value."""

    format: ValueFormat
    schema: bytes = b""
    message: str = ""
    skip_bytes: int = 0

    def check(self) -> None:
        """Raises BadShape."""
        if self.format not in DECODED:
            if self.schema or self.message or self.skip_bytes:
                raise BadShape("--schema, --message and --skip-bytes need --value-format avro or protobuf")
            return
        if not self.schema:
            raise BadShape(f"--value-format {self.format} needs --schema with a file that is not empty")
        if (self.format == "protobuf") != bool(self.message):
            raise BadShape("--value-format protobuf needs --message, and Avro does not accept it")
        if self.format == "avro":
            try:
                msgspec.json.decode(self.schema)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise BadShape(f"--schema must be a file with an Avro schema in JSON: {error}") from None

    def decoded(self, frame: DataFrame) -> DataFrame:
        """The frame with the column ``decoded``: ``{"value": …}`` as JSON, or null for an invalid value, or if there is
        nothing to decode. Raises MissingPackage, BadShape."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        if self.format not in DECODED:
            return frame.selectExpr("*", "CAST(NULL AS STRING) AS decoded")
        try:
            return self._avro(frame) if self.format == "avro" else self._protobuf(frame)
        except PySparkException as error:
            if (error.getCondition() or "").endswith(_NOT_LOADED):
                raise missing(*PACKAGES[self.format], frame.sparkSession) from None
            raise BadShape(f"Spark cannot use the {self.format.capitalize()} schema: {describe(error)}") from None
        except Py4JJavaError as error:
            why = java_cause(error)[1]
            raise BadShape(f"Spark cannot use the {self.format.capitalize()} schema: {why}") from None

    def _content(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        return F.expr(f"substring(value, {self.skip_bytes + 1})") if self.skip_bytes else F.col("value")

    def _avro(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.avro.functions import from_avro

        found = from_avro(self._content(), (_WRAPPED % self.schema).decode(), {"mode": "PERMISSIVE"})
        json = F.to_json(found["message"], {"ignoreNullFields": "false"})
        return frame.withColumn("decoded", json)

    def _protobuf(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.protobuf.functions import from_protobuf

        content = self._content()
        # A member that has its default value is not sent. It is part of the payload, unless the schema can tell that it
        # is absent.
        options = {"mode": "PERMISSIVE", "emit.default.values": "true", "upcast.unsigned.ints": "true"}
        found = from_protobuf(content, self.message, options=options, binaryDescriptorSet=self.schema)
        with_value = frame.withColumn("decoded", found)
        names = with_value.schema["decoded"].dataType.fieldNames()  # type: ignore[attr-defined]
        members = [F.col("decoded").getField(name).isNotNull() for name in names]
        is_valid = reduce(or_, members, F.octet_length(content) == 0)
        json = F.when(is_valid, F.to_json(F.struct(F.col("decoded").alias("value"))))
        return with_value.withColumn("decoded", json)
