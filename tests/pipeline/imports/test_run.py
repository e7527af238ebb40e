"""Out of logs and into logs again, on Spark and without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.lake_copy import fill

from strandline.engine import Batch, Engine
from strandline.engine.ownership import COLLECTION, TABLE
from strandline.history.directory import DirectoryHistory
from strandline.history.pieces import Where
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.chosen_logs import Chosen
from strandline.pipeline.export.from_lake import export_lake
from strandline.pipeline.export.run import ExportFailed, ExportSelection, export
from strandline.pipeline.imports.files import RowShape, UnreadableFile, find_files
from strandline.pipeline.imports.run import ImportReport, import_files, knowing
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.targets import CannotAppend, open_target
from strandline.pipeline.tasks import LocalWorkers, SparkWorkers, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two logs, and one that holds anything."""
    with Engine.open(tmp_path / "data", background=False) as engine:
        orders = engine.create("orders").wait()
        for number in range(4):
            rows = [b'{"n": %d}' % (10 * number + row) for row in range(10)]
            keys, nodes = ["a", None] * 5, [None, "n1"] * 5
            metas = [b'{"m":1}', None, None, None, None] * 2
            orders.append(Batch(rows, keys, nodes, metas), ts=TIME + 1000 * (number // 2)).wait()
            if number == 1:
                engine.seal()
        engine.create("events").wait().append(Batch([b'"x"', b'{"a":\n1}']), ts=TIME).wait()
    return tmp_path / "data"


def records_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    history = DirectoryHistory(path)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for info in history.logs():
        found[info.name] = []
        for piece in history.pieces(info, 0, info.head, 1000):
            for batch in piece.read():
                columns = [batch.column(name).to_pylist() for name in ("seq", "ts", "key", "node", "meta", "data")]
                found[info.name] += zip(*columns, strict=True)
    history.close()
    return found


def import_into(workers: Workers, path: Path, source: str, shape: RowShape, **wishes: Any) -> ImportReport:
    place = LogLocation(path=str(path))
    shape = knowing(shape, place)
    with open_target(place, sync=False) as target:
        return import_files(workers, find_files([source]), shape, target, Silent(), **wishes)


@pytest.mark.parametrize("note", [COLLECTION, TABLE])
def test_a_log_that_has_an_owner_takes_no_import(tmp_path: Path, note: str) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("owned", notes={note: "x"}, batch=Batch([b"{}"])).wait()
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')
    with pytest.raises(CannotAppend, match="cannot append to log 'owned'"):
        import_into(
            LocalWorkers(), tmp_path / "data", str(tmp_path / "rows.jsonl"), RowShape(format="jsonl", log="owned")
        )
    assert len(records_of(tmp_path / "data")["owned"]) == 1


def test_what_is_exported_and_imported_is_the_same(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    on_spark, here = SparkWorkers(spark), LocalWorkers()
    history = DirectoryHistory(data)
    report = export(on_spark, history, str(tmp_path / "out"), "jsonl", ExportSelection(Chosen()), Silent())
    assert (report.records, report.logs) == (42, {"events": 2, "orders": 40})
    manifest = msgspec.json.decode((tmp_path / "out" / "_export.json").read_bytes())
    assert manifest["files"] == report.files == ["part-000000.jsonl"]
    history.close()

    shape = RowShape(format="jsonl", exported=True, keep_ts=True)
    done = import_into(on_spark, tmp_path / "again", str(tmp_path / "out"), shape)
    assert (done.records, done.appended) == (42, {"events": 2, "orders": 40})
    assert records_of(tmp_path / "again") == records_of(data)

    # Where it ran does not matter for the progress.
    once_more = import_into(here, tmp_path / "again", str(tmp_path / "out"), shape)
    assert (once_more.records, once_more.there_before) == (0, 42)
    other_job = import_into(here, tmp_path / "again", str(tmp_path / "out"), shape, job="second")
    assert other_job.records == 42


def test_an_export_has_what_was_chosen_or_is_not_made(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    history = DirectoryHistory(data)
    fill(lake, history)
    chosen = ExportSelection(Chosen(logs=["orders"]), 11, 35, Where(key="a", since=TIME, until=TIME + 1000))
    out = tmp_path / "out"
    assert export(LocalWorkers(), history, str(out), "csv", chosen, Silent()).logs == {"orders": 5}
    from_lake = export_lake(spark, lake, str(tmp_path / "from-lake"), "csv", chosen, Silent())
    assert from_lake.logs == {"orders": 5}
    (part,) = from_lake.files
    assert (tmp_path / "from-lake" / part).read_bytes() == (out / "part-000000.csv").read_bytes()
    with pytest.raises(ExportFailed, match="no matching records of nothing"):
        export_lake(spark, lake, str(tmp_path / "x"), "csv", ExportSelection(Chosen(logs=["nothing"])), Silent())

    # A view pins the files; what is damaged is so under both names.
    (segment,) = (data / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    with pytest.raises(ExportFailed, match="log 'orders'"):
        export(LocalWorkers(), history, str(tmp_path / "x"), "csv", ExportSelection(Chosen()), Silent())
    assert not (tmp_path / "x").exists()
    history.close()


def test_bad_rows_stop_everything_or_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = LocalWorkers()
    # Many parts, so that it takes several waves.
    monkeypatch.setattr("strandline.pipeline.imports.files.PART_BYTES", 40)
    source = tmp_path / "rows.jsonl"
    lines = [b'{"n":%d}' % number for number in range(200)]
    lines[120], lines[150] = b"bad", b'{"n":'
    source.write_bytes(b"\n".join(lines))
    shape = RowShape(format="jsonl", log="rows", key_path="/n")
    stopped = import_into(workers, tmp_path / "data", str(source), shape)
    assert (stopped.stopped, stopped.records, stopped.bad) == (True, 0, 2)
    assert [(Path(place.path).name, place.number) for place in stopped.places] == [
        ("rows.jsonl", 121),
        ("rows.jsonl", 151),
    ]
    assert records_of(tmp_path / "data") == {}
    done = import_into(workers, tmp_path / "data", str(source), shape, bad="skip")
    assert (done.stopped, done.records, done.bad) == (False, 198, 2)
    found = records_of(tmp_path / "data")["rows"]
    assert [(row[2], row[5]) for row in found] == [
        (str(number), line) for number, line in enumerate(lines) if number not in (120, 150)
    ]
    (tmp_path / "b.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(UnreadableFile, match=r"b\.jsonl\.gz"):
        import_into(workers, tmp_path / "data", str(tmp_path / "b.jsonl.gz"), shape)
