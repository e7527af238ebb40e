"""The declarations of the how-to guides, as Spark runs them over logs that fit them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from support.document_tables import ROOT
from support.guide import blocks

from strandline.engine import Batch, Engine
from strandline.lake.declared import DeclaredFiles
from strandline.pipeline.declared.catalog import TableCatalog
from strandline.pipeline.declared.names import resolving
from strandline.pipeline.declared.plans import group_columns
from strandline.pipeline.declared.project import load_project
from strandline.pipeline.declared.registry import load_declarations
from strandline.pipeline.declared.statements import StatementReader
from strandline.pipeline.source.options import LogLocation
from strandline.schema.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GUIDES = ("join-two-logs", "windowed-counts", "write-results-back")
SUFFIXES = {"sql": ".sql", "python": ".py"}
ORDERS = {"type": "object", "properties": {"customer": {"type": "string"}, "cents": {"type": "integer"}}}
MINUTE = 60_000
BEGIN = datetime(2026, 11, 2, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TableCatalog:
    """One project with everything that the guides declare."""
    place = tmp_path_factory.mktemp("how-to")
    begin = round(BEGIN.timestamp() * 1000)
    with Engine.open(place / "data", background=False) as engine:
        orders = engine.create("orders", notes={"registry": Registry.installed("orders", ORDERS).stored()}).wait()
        orders.append(Batch([b'{"customer":"ada","cents":180}', b'{"customer":"bob","cents":70}']), ts=begin).wait()
        orders.append(Batch([b'{"customer":"bob","cents":4200}']), ts=begin + 5 * MINUTE).wait()
        visits = engine.create("visits").wait()
        visits.append(Batch([b'{"page":"/pens"}'], ["ada"]), ts=begin + MINUTE).wait()
    project = place / "project"
    (project / "tables").mkdir(parents=True)
    (project / "pipeline.toml").touch()
    for guide in GUIDES:
        text = (ROOT / "docs/how-to" / f"{guide}.md").read_text()
        for number, block in enumerate(blocks(text)):
            if block.kind in SUFFIXES:
                (project / "tables" / f"{guide}-{number}{SUFFIXES[block.kind]}").write_text(block.text)
    loaded = load_project(project)
    # `sql` is looked up when a query is evaluated.
    declarations = load_declarations(loaded, spark, StatementReader(spark, lambda text: spark.sql(text)).read)
    return TableCatalog(spark, loaded, declarations, LogLocation(path=str(place / "data")), DeclaredFiles.of(place))


class LogNames:
    """Every name is a log. With ``as_streams``, it is a stream, as for a view that streaming state keeps."""

    def __init__(self, catalog: TableCatalog, *, as_streams: bool) -> None:
        self._catalog = catalog
        self._as_streams = as_streams

    def frame(self, name: str, streaming: bool) -> DataFrame:
        return self._catalog.log_frame(self._catalog.spark, name, streaming or self._as_streams)


def evaluated(catalog: TableCatalog, name: str, *, as_streams: bool = False) -> DataFrame:
    (flow,) = catalog.declarations.flows[name]
    assert flow.query is not None
    with resolving(catalog.spark, LogNames(catalog, as_streams=as_streams)):
        return flow.query()


@pytest.fixture
def results(spark: SparkSession) -> Iterator[str]:
    """The name of the view with the rows of a stream."""
    name = "how_to_results"
    yield name
    spark.catalog.dropTempView(name)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("orders_with_visits", [("ada", 180, "/pens", BEGIN, BEGIN.replace(minute=1))]),
        ("orders_with_counts", [("ada", 180, 1)]),
        # The minute of the last order is not over.
        ("closed_minutes", [(BEGIN, 2, 250)]),
        ("large", [("bob", 4200)]),
    ],
)
def test_a_stream_of_a_guide_has_its_rows(
    catalog: TableCatalog, results: str, name: str, rows: list[tuple[Any, ...]]
) -> None:
    frame = evaluated(catalog, name)
    assert frame.isStreaming
    writer = frame.writeStream.format("memory").queryName(results).outputMode("append")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row.values()) for row in catalog.spark.table(results).toArrow().to_pylist()] == rows


@pytest.mark.parametrize(
    ("name", "keys", "rows"),
    [
        ("orders_per_minute", ["minute"], [(BEGIN, 2, 250), (BEGIN.replace(minute=5), 1, 4200)]),
        ("revenue", ["customer"], [("ada", 180), ("bob", 4270)]),
    ],
)
def test_a_view_of_a_guide_is_kept_by_state(
    catalog: TableCatalog, name: str, keys: list[str], rows: list[tuple[Any, ...]]
) -> None:
    found = evaluated(catalog, name).orderBy(*keys).toArrow().to_pylist()
    assert [tuple(row.values()) for row in found] == rows
    assert group_columns(evaluated(catalog, name, as_streams=True)) == keys


def test_every_declaration_of_the_guides_is_tested(catalog: TableCatalog) -> None:
    assert set(catalog.declarations.outputs) == {
        "orders_with_visits", "orders_with_counts", "closed_minutes", "large", "orders_per_minute", "revenue"
    }  # fmt: skip
