"""Runs work on Spark: items are sent to tasks, and results come back.

An item is small and self-contained: what to read, and what to write and where. Nothing else is sent, so it does not
matter which process handles it, or how often. A task that dies is retried elsewhere, and the files of the first attempt
are never referenced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from strandline.lake.reporter import TaskFailed, describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

ITEMS = pa.schema([pa.field("item", pa.binary(), nullable=False)])
RESULTS = "result binary"
PARTS = "destination string, part binary"
#: Items per parallel task in a wave: enough that no task waits long for the slowest.
WAVES = 4
#: The maximum number of pieces or files that an error names.
NAMED = 3

Item = TypeVar("Item", bound=msgspec.Struct)
Result = TypeVar("Result", bound=msgspec.Struct)
Shared = TypeVar("Shared", bound=msgspec.Struct)


def work(
    spark: SparkSession,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    kind: type[Item],
    result: type[Result],
    parallel: int | None = None,
) -> Iterator[list[Result]]:
    """Apply a module-level function to all items, and yield the results wave by wave.

    The results of a wave can be committed before the next one starts, so a crash costs at most one wave. Within a wave,
    results are in any order. The items of a wave are taken when it starts. ``parallel`` is the number of tasks that can
    run at the same time, if known.
    """
    remaining = iter(items)
    size = WAVES * (parallel or parallelism(spark))
    while wave := list(islice(remaining, size)):
        yield _wave(spark, function, wave, kind, result)


def shuffle(
    spark: SparkSession,
    spread: Callable[[Item, Shared], Iterable[tuple[str, bytes]]],
    gather: Callable[[str, list[bytes], Shared], Result],
    items: Sequence[Item],
    kind: type[Item],
    shared: Shared,
    result: type[Result],
) -> list[Result]:
    """Spread all items over destinations, and gather the parts of each destination.

    Both functions are module-level. Spark passes parts on unchanged and in any order; all parts of one destination are
    in memory together. ``shared`` is sent once per task.
    """
    if not items:
        return []
    known = msgspec.msgpack.encode(shared)
    frame = _frame(spark, items).repartition(len(items))
    parts = frame.mapInArrow(_Spreader(spread, kind, type(shared), known), PARTS)
    gathered = parts.groupBy("destination").applyInArrow(_gatherer(gather, type(shared), known), RESULTS)
    return _results(gathered, result)


class TaskWorkers(Protocol):
    """Applies a function to items, in any order, and yields the results."""

    def __call__(
        self, function: Callable[[Item], Result], items: Iterable[Item], kind: type[Item], result: type[Result]
    ) -> Iterator[Result]: ...


def on_spark(spark: SparkSession) -> TaskWorkers:
    """Workers that run as tasks of this session."""
    parallel = parallelism(spark)

    def workers(
        function: Callable[[Item], Result], items: Iterable[Item], kind: type[Item], result: type[Result]
    ) -> Iterator[Result]:
        for wave in work(spark, function, items, kind, result, parallel):
            yield from wave

    return workers


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that can run at the same time. Spark Connect does not report it, so a range is probed."""
    return max(spark.range(1_000_000).selectExpr("spark_partition_id() as id").distinct().count(), 1)


def _wave(
    spark: SparkSession,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    kind: type[Item],
    result: type[Result],
) -> list[Result]:
    frame = _frame(spark, items).repartition(len(items))
    return _results(frame.mapInArrow(_Worker(function, kind), RESULTS), result)


def _frame(spark: SparkSession, items: Sequence[msgspec.Struct]) -> DataFrame:
    encode = msgspec.msgpack.Encoder().encode
    return spark.createDataFrame(pa.table({"item": [encode(item) for item in items]}, schema=ITEMS))


def _results(frame: DataFrame, result: type[Result]) -> list[Result]:
    decode = msgspec.msgpack.Decoder(result).decode
    return [decode(row) for row in frame.toArrow().column("result").to_pylist()]


class _Worker:
    """Runs in a task. The function is looked up by its name in its module."""

    def __init__(self, function: Callable[[Any], Any], kind: type[Any]) -> None:
        self._function = function
        self._kind = kind

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        decode = msgspec.msgpack.Decoder(self._kind).decode
        encode = msgspec.msgpack.Encoder().encode
        for batch in batches:
            for encoded in batch.column(0).to_pylist():
                item = decode(encoded)
                with _naming(self._function, item):
                    done = self._function(item)
                yield _result(encode(done))


class _Spreader:
    def __init__(self, function: Callable[[Any, Any], Any], kind: type[Any], known: type[Any], shared: bytes) -> None:
        self._function = function
        self._kind = kind
        self._known = known
        self._shared = shared

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        decode = msgspec.msgpack.Decoder(self._kind).decode
        shared = msgspec.msgpack.decode(self._shared, type=self._known)
        for batch in batches:
            for encoded in batch.column(0).to_pylist():
                item = decode(encoded)
                with _naming(self._function, item):
                    for destination, part in self._function(item, shared):
                        yield pa.record_batch(
                            [pa.array([destination]), pa.array([part], pa.binary())], ["destination", "part"]
                        )


def _gatherer(function: Callable[[str, list[bytes], Any], Any], known: type[Any], encoded: bytes) -> Callable[..., Any]:
    """A plain function without annotations, because Spark infers types from annotations and accepts only its own."""

    def gathered(key, table):  # type: ignore[no-untyped-def]
        shared = msgspec.msgpack.decode(encoded, type=known)
        with _naming(function, f"bucket {key[0].as_py()}"):
            done = function(key[0].as_py(), table.column("part").to_pylist(), shared)
        return pa.Table.from_batches([_result(msgspec.msgpack.encode(done))])

    return gathered


def _result(encoded: bytes) -> Any:
    return pa.record_batch([pa.array([encoded], pa.binary())], ["result"])


@contextmanager
def _naming(function: Callable[..., Any], item: Any) -> Iterator[None]:
    """Add what a task works on to its error. How much of a traceback returns depends on where Spark runs, so the
    message has everything needed; the worker's log has the traceback."""
    try:
        yield
    except Exception as error:
        about = item if isinstance(item, str) else about_item(item)
        log.error("%s failed on %s", function.__name__, about, exc_info=True)
        raise TaskFailed(f"{function.__name__} failed on {about}: {describe(error)}") from None


def about_item(item: Any) -> str:
    """The logs and seqs, or the files, that an item refers to."""
    things = [item, *_listed(item, "work")]
    pieces = [piece for thing in things for piece in (*_listed(thing, "piece"), *_listed(thing, "pieces"))]
    found = [f"log {piece.log!r} seqs {piece.first} to {piece.last}" for piece in pieces]
    for thing in things:
        found += [str(path) for name in ("path", "paths", "files", "companions") for path in _listed(thing, name)]
    more = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {more} more" if more > 0 else "") or type(item).__name__


def _listed(thing: Any, name: str) -> list[Any]:
    found = getattr(thing, name, None)
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]
