"""Runs work: on Spark, where items are sent to tasks and results come back, or in this process.

An item is small and self-contained: what to read, and what to write and where. Nothing else is sent, so it does not
matter which process handles it, or how often. A task that dies is retried elsewhere, and the files of the first attempt
are never referenced.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from strandline.lake.reporter import TaskFailed, describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

ITEMS = pa.schema([pa.field("task", pa.int32(), nullable=False), pa.field("item", pa.binary(), nullable=False)])
RESULTS = "result binary"
PARTS = "destination string, part binary"
#: Items in a wave per item that is worked on at the same time: enough that no task waits long for the slowest.
WAVES = 4
#: The maximum number of pieces or files that an error names.
NAMED = 3

Item = TypeVar("Item", bound=msgspec.Struct)
Result = TypeVar("Result", bound=msgspec.Struct)
Shared = TypeVar("Shared", bound=msgspec.Struct)


class Workers(ABC):
    """Applies a module-level function to items.

    Items go in waves: the results of a wave can be committed before the next one starts, so a crash costs at most one
    wave. Within a wave, results are in any order. The items of a wave are taken when it starts.
    """

    @property
    @abstractmethod
    def parallel(self) -> int:
        """The number of items that can be worked on at the same time."""

    @property
    @abstractmethod
    def wave(self) -> int:
        """The maximum number of items of a wave."""

    def waves(
        self, function: Callable[[Item], Result], items: Iterable[Item], kind: type[Item], result: type[Result]
    ) -> Iterator[list[Result]]:
        """The results, wave by wave."""
        remaining = iter(items)
        while wave := list(islice(remaining, self.wave)):
            yield self._work(function, wave, kind, result)

    def results(
        self, function: Callable[[Item], Result], items: Iterable[Item], kind: type[Item], result: type[Result]
    ) -> Iterator[Result]:
        """The results, in any order."""
        for wave in self.waves(function, items, kind, result):
            yield from wave

    @abstractmethod
    def _work(
        self, function: Callable[[Item], Result], wave: Sequence[Item], kind: type[Item], result: type[Result]
    ) -> list[Result]:
        """The results of one wave."""


class LocalWorkers(Workers):
    """Works in this process, on one item after the other, so that memory holds only one. Needs neither Spark nor
    Java."""

    parallel = 1
    #: A crash costs little, as the files of a wave are there already. With larger waves, more imports read files once.
    wave = 32

    def _work(
        self, function: Callable[[Item], Result], wave: Sequence[Item], kind: type[Item], result: type[Result]
    ) -> list[Result]:
        return [self._one(function, item) for item in wave]

    def _one(self, function: Callable[[Item], Result], item: Item) -> Result:
        try:
            return function(item)
        except Exception as error:
            raise TaskFailed(_failure(function, item, error)) from error


class SparkWorkers(Workers):
    """Works in tasks of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def wave(self) -> int:
        return WAVES * self.parallel

    @cached_property
    def parallel(self) -> int:
        """Spark Connect does not report the number of tasks that can run at the same time, so a range is probed."""
        return max(self._spark.range(1_000_000).selectExpr("spark_partition_id() as id").distinct().count(), 1)

    def _work(
        self, function: Callable[[Item], Result], wave: Sequence[Item], kind: type[Item], result: type[Result]
    ) -> list[Result]:
        with self._described(job_description(function, wave)):
            return _results(items_frame(self._spark, wave).mapInArrow(_Worker(function, kind), RESULTS), result)

    @contextmanager
    def _described(self, text: str) -> Iterator[None]:
        """Jobs in the block have this description in Spark's UI. Spark Connect cannot set one."""
        context = getattr(self._spark, "_sc", None)
        if context is None:
            yield
            return
        context.setJobDescription(text)
        try:
            yield
        finally:
            context.setJobDescription(None)

    def shuffle(
        self,
        spread: Callable[[Item, Shared], Iterable[tuple[str, bytes]]],
        gather: Callable[[str, list[bytes], Shared], Result],
        items: Sequence[Item],
        kind: type[Item],
        shared: Shared,
        result: type[Result],
    ) -> list[Result]:
        """Spread all items over destinations, and gather the parts of each destination.

        Both functions are module-level. Spark passes parts on unchanged and in any order; all parts of one destination
        are in memory together. ``shared`` is sent once per task.
        """
        if not items:
            return []
        known = msgspec.msgpack.encode(shared)
        parts = items_frame(self._spark, items).mapInArrow(_Spreader(spread, kind, type(shared), known), PARTS)
        gathered = parts.groupBy("destination").applyInArrow(_gatherer(gather, type(shared), known), RESULTS)
        with self._described(job_description(spread, items)):
            return _results(gathered, result)


def job_description(function: Callable[..., Any], items: Sequence[Any]) -> str:
    """What a job does, and how much, as far as its items say. Spark itself counts only items, because tasks read and
    write Arrow."""
    things = [thing for item in items for thing in (item, *_listed(item, "work"))]
    rows = sum(piece.rows for thing in things for piece in _listed(thing, "pieces"))
    files = sum(len(_listed(thing, name)) for thing in things for name in ("path", "paths", "files"))
    parts = [(len(items), "item"), (rows, "record"), (files, "file")]
    amounts = [f"{count:,} {what}{'s' if count > 1 else ''}" for count, what in parts if count]
    return f"{function.__name__.replace('_', ' ')}: {', '.join(amounts)}"


def items_frame(spark: SparkSession, items: Sequence[msgspec.Struct]) -> DataFrame:
    """A frame with one item per task. With ``repartition``, some tasks have several items and others none, because it
    deals out the rows of each partition from another start."""
    encode = msgspec.msgpack.Encoder().encode
    encoded = [encode(item) for item in items]
    frame = spark.createDataFrame(pa.table({"task": range(len(items)), "item": encoded}, schema=ITEMS))
    return frame.repartitionById(len(items), "task").select("item")


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
        failure = _failure(function, item, error)
        log.error("%s", failure, exc_info=True)
        raise TaskFailed(failure) from None


def _failure(function: Callable[..., Any], item: Any, error: Exception) -> str:
    about = item if isinstance(item, str) else about_item(item)
    return f"{function.__name__} failed on {about}: {describe(error)}"


def about_item(item: Any) -> str:
    """The logs and seqs, or the files, that an item refers to."""
    parts = [part.file for part in _listed(item, "part") if hasattr(part, "file")]
    things = [item, *_listed(item, "work"), *parts]
    pieces = [piece for thing in things for piece in (*_listed(thing, "piece"), *_listed(thing, "pieces"))]
    found = [f"log {piece.log!r} seqs {piece.first} to {piece.last}" for piece in pieces]
    for thing in things:
        found += [str(path) for name in ("path", "paths", "files", "companions") for path in _listed(thing, name)]
    more = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {more} more" if more > 0 else "") or type(item).__name__


def _listed(thing: Any, name: str) -> list[Any]:
    found = getattr(thing, name, None)
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]
