"""Rows that fail go to a log, with the reason, and the others are written.

When the query fails over a batch, it is run again over halves of the batch's input rows, and over their halves, until
the rows that fail are alone. A batch that is repeated finds the same rows, which are appended once.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions

from strandline.engine.errors import UnknownLog
from strandline.pipeline.declared.catalog import PartNames, TableCatalog
from strandline.pipeline.declared.errors import query_error
from strandline.pipeline.declared.names import resolving
from strandline.pipeline.declared.registry import DeclaredFlow
from strandline.pipeline.declared.tables import append
from strandline.pipeline.source.targets import open_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A batch with more failing rows fails as a whole: the query is wrong, not the rows.
MAX_LETTERS = 1000
#: How a failing row shows: PySpark knows some of Spark's exceptions, and leaves others to Py4J.
FAILURES = (PySparkException, Py4JJavaError)
_PLACE = "strandline_row_number"


class TooManyFailed(Exception):
    """More rows of a batch failed than a dead-letter log is for."""


class DeadLetterWriter:
    """Writes the batches of one flow to a table. ``name`` is the log or table that the flow reads."""

    def __init__(self, catalog: TableCatalog, flow: DeclaredFlow, name: str, path: Path, log: str, app: str) -> None:
        self._catalog = catalog
        self._flow = flow
        self._name = name
        self._path = path
        self._log = log
        self._app = app

    def write(self, batch: DataFrame, number: int) -> None:
        if batch.isEmpty():
            return
        batch = batch.persist()
        try:
            try:
                append(self._run(batch), self._path, self._app, number)
            except AnalysisException:
                # The query is wrong, not a row.
                raise
            except FAILURES:
                self._write_rest(batch, number)
        finally:
            batch.unpersist()

    def _run(self, part: DataFrame) -> DataFrame:
        assert self._flow.query is not None
        with resolving(part.sparkSession, PartNames(self._catalog, part.sparkSession, self._name, part)):
            return self._flow.query()

    def _write_rest(self, batch: DataFrame, number: int) -> None:
        # Rows of a stored batch keep their numbers.
        numbered = batch.select("*", functions.monotonically_increasing_id().alias(_PLACE)).persist()
        try:
            places = sorted(row[0] for row in numbered.select(_PLACE).collect())
            failed: dict[int, str] = {}
            self._search(numbered, places, failed)
            self._append_letters(numbered, failed, number)
            good = numbered.where(~functions.col(_PLACE).isin(list(failed))).drop(_PLACE)
            append(self._run(good), self._path, self._app, number)
        finally:
            numbered.unpersist()

    def _search(self, numbered: DataFrame, places: list[int], failed: dict[int, str]) -> None:
        part = numbered.where(functions.col(_PLACE).between(places[0], places[-1])).drop(_PLACE)
        try:
            # Evaluates every column of the result.
            self._run(part).write.format("noop").mode("overwrite").save()
            return
        except AnalysisException:
            raise
        except FAILURES as error:
            reason = query_error(error)
        if len(places) == 1:
            failed[places[0]] = reason
            if len(failed) > MAX_LETTERS:
                raise TooManyFailed(f"more than {MAX_LETTERS} rows of a batch failed, the last one with: {reason}")
            return
        half = len(places) // 2
        self._search(numbered, places[:half], failed)
        self._search(numbered, places[half:], failed)

    def _append_letters(self, numbered: DataFrame, failed: dict[int, str], number: int) -> None:
        if not failed:
            return
        columns = [each for each in numbered.columns if each != _PLACE]
        rows = numbered.where(functions.col(_PLACE).isin(list(failed))).select(
            _PLACE,
            functions.to_json(functions.struct(*columns)).alias("row"),
            *([functions.col("key")] if "key" in columns else []),
        )
        found = sorted(rows.collect(), key=lambda row: int(row[_PLACE]))
        data = [_letter(self._flow, self._name, row["row"], failed[row[_PLACE]]) for row in found]
        keys = [row["key"] if "key" in row.asDict() else None for row in found]
        table = pa.table(
            {
                "key": pa.array(keys, pa.string()),
                "node": pa.nulls(len(found), pa.string()),
                "meta": pa.nulls(len(found), pa.binary()),
                "data": pa.array(data, pa.binary()),
            }
        )
        writer = writer_name(self._flow.target, f"{self._flow.name}/letters")
        with open_target(self._catalog.place) as target:
            try:
                before: dict[str, Any] | None = target.progress(self._log, writer)
            except UnknownLog:
                before = None
            if before is None or before["run"] != self._app or before["batch"] < number:
                target.append(self._log, table, writer, before, {"run": self._app, "batch": number})


def writer_name(table: str, flow: str) -> str:
    """The name under which a log stores the progress of a flow: short, whatever the names are."""
    return f"declared-{sha256(f'{table}/{flow}'.encode()).hexdigest()[:32]}"


def _letter(flow: DeclaredFlow, name: str, row: str, reason: str) -> bytes:
    return json.dumps(
        {"table": flow.target, "flow": flow.name, "input": name, "error": reason, "row": json.loads(row)},
        separators=(",", ":"),
    ).encode()
