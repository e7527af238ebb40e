"""Work on Spark: items go out, are worked on by whichever task gets them, and what came of each comes back.

An item is a few bytes that say everything: what to read, what to write and where. Nothing else is sent along, so it
does not matter which process works on it, or how often: a task that dies is tried again elsewhere, and what the first
attempt left behind belongs to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS = pa.schema([pa.field("item", pa.binary(), nullable=False)])
RESULTS = "result binary"
#: A wave has so many items for each task that can run at a time: enough that none waits long for the slowest.
WAVES = 4

Item = TypeVar("Item", bound=msgspec.Struct)
Result = TypeVar("Result", bound=msgspec.Struct)


def work(
    spark: SparkSession,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    kind: type[Item],
    result: type[Result],
) -> Iterator[list[Result]]:
    """Have all items worked on by a function of a module, and give what came of them, wave after wave.

    What one wave has done can be committed before the next begins, so a crash costs a wave at most. Within a wave
    results come in any order.
    """
    size = WAVES * parallelism(spark)
    for start in range(0, len(items), size):
        yield _wave(spark, function, items[start : start + size], kind, result)


def parallelism(spark: SparkSession) -> int:
    """How many tasks can run at a time. Spark Connect does not tell; what it would make of a plain range does."""
    return max(spark.range(1_000_000).selectExpr("spark_partition_id() as id").distinct().count(), 1)


def _wave(
    spark: SparkSession,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    kind: type[Item],
    result: type[Result],
) -> list[Result]:
    encode = msgspec.msgpack.Encoder().encode
    frame = spark.createDataFrame(pa.table({"item": [encode(item) for item in items]}, schema=ITEMS))
    worked = frame.repartition(len(items)).mapInArrow(_Worker(function, kind), RESULTS)
    decode = msgspec.msgpack.Decoder(result).decode
    return [decode(row) for row in worked.toArrow().column("result").to_pylist()]


class _Worker:
    """What runs in a task. The function is found by its name in the module it is from."""

    def __init__(self, function: Callable[[Any], Any], kind: type[Any]) -> None:
        self._function = function
        self._kind = kind

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        decode = msgspec.msgpack.Decoder(self._kind).decode
        encode = msgspec.msgpack.Encoder().encode
        for batch in batches:
            for item in batch.column(0).to_pylist():
                yield pa.record_batch([pa.array([encode(self._function(decode(item)))], pa.binary())], ["result"])
