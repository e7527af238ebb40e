from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lake_copy import fill
from support.local_tasks import TravellingWorkers

from strandline.engine import Batch, Config, Engine, Log
from strandline.history.directory import DirectoryHistory
from strandline.lake import layout
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.audit.lake_files import LakeSnapshot
from strandline.pipeline.audit.report import AuditReport, write_report
from strandline.pipeline.audit.run import audit
from strandline.pipeline.chosen_logs import EVERYTHING, Chosen, UnknownLogs
from strandline.pipeline.tasks import SparkWorkers, Workers
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, meta_of, sign, signed_bytes
from strandline.signing.keys import Signer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTHOR = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)


@contextmanager
def history_of(data: Path) -> Iterator[DirectoryHistory]:
    history = DirectoryHistory(data)
    try:
        yield history
    finally:
        history.close()


def audit_here(
    data: Path, lake: Lake | None = None, chosen: Chosen = EVERYTHING, workers: Workers | None = None
) -> AuditReport:
    snapshot = None if lake is None else LakeSnapshot.take(lake)
    with history_of(data) as history:
        return audit(
            workers or TravellingWorkers(),
            history,
            snapshot,
            Silent(),
            chosen,
            source=str(data),
            now=lambda: 1_700_000_000_000,
        )


def about(report: AuditReport, log: str) -> list[tuple[str, bool, int | None, int]]:
    return [(each.check, each.ok, each.first_seq, each.count) for each in report.findings if each.log == log]


def signed(log: str, data: bytes, author: Ed25519PrivateKey = AUTHOR) -> bytes:
    signature = author.sign(signed_bytes(log, data))
    proof = {
        "authorPubkey": author.public_key().public_bytes_raw().hex(),
        "authorSignature": base64.b64encode(signature).decode(),
    }
    return msgspec.json.encode(proof)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory in which everything is as it should be: sealed and not sealed, deleted, capped, forked, signed."""
    path = tmp_path / "data"
    with Engine.open(path, background=False) as engine:
        log = engine.create("log", Config(durability="fsync")).wait()
        for start in range(0, 60, 20):
            log.append(Batch([b'{"n":%d}' % number for number in range(start, start + 20)], keys=["k"] * 20)).wait()
            engine.seal()
        log.delete(seqs=[5, 6]).wait()
        log.append(Batch([b'{"tail":1}', b"\xff"])).wait()
        fork = engine.fork("fork", log, 30).wait()
        fork.append(Batch([b"1", b"2"])).wait()
        capped = engine.create("capped", Config(cap_records=3)).wait()
        capped.append(Batch([b"%d" % number for number in range(10)])).wait()
        author = engine.create("author").wait()
        author.append(Batch([b'{"a": 1}', b"{}"], metas=[signed("author", b'{"a":1}'), b'{"x":1}'])).wait()
        engine.create("empty").wait()
        engine.create("memory", Config(durability="ephemeral")).wait().append(Batch([b"1"])).wait()
    return path


def test_a_sound_directory_is_found_sound(data: Path, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with history_of(data) as history:
        fill(lake, history, erasures=1)
    report = audit_here(data, lake)
    assert [finding for finding in report.findings if not finding.ok] == []
    assert [finding.check for finding in report.findings] == [
        "blocks", "order", "duplicates", "gaps", "floors", "proofs", "lake", "copies",
    ]  # fmt: skip
    assert (report.logs, report.records) == (5, 60 + 2 + 3 + 2)
    assert "1 proofs" in next(finding.detail for finding in report.findings if finding.check == "proofs")
    assert audit_here(data, None, Chosen(logs=["log"])).records == 60
    with pytest.raises(UnknownLogs):
        audit_here(data, None, Chosen(logs=["nothing"]))


def largest_segment(data: Path) -> Path:
    return max((data / "segments").iterdir(), key=lambda path: path.stat().st_size)


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    path.write_bytes(content)


def test_damage_is_named_and_everything_else_is_still_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Engine.open(path, background=False) as engine:
        log = engine.create("log").wait()
        payloads = [msgspec.json.encode({"n": number, "text": f"{number:x}" * 400}) for number in range(4000)]
        log.append(Batch(payloads)).wait()
        engine.create("other").wait().append(Batch([b"1"])).wait()
        engine.seal()
        log.append(Batch([b"2"])).wait()
    flip(largest_segment(path), 0.5)
    report = audit_here(path)
    assert not report.ok
    assert about(report, "other") == []
    (found,) = [finding for finding in report.findings if finding.log == "log"]
    assert (found.check, found.ok) == ("blocks", False)
    assert found.first_seq is not None
    assert 1 < found.first_seq < 4000
    assert 0 < found.count < 4000
    assert f"seqs {found.first_seq} to" in found.detail
    assert "damaged block" in found.detail
    assert report.records == 4001 - found.count + 1


def test_a_segment_that_cannot_be_opened_is_told_by_the_logs_in_it(data: Path) -> None:
    victim = min((data / "segments").iterdir())
    victim.write_bytes(victim.read_bytes()[:-4] + b"oops")
    report = audit_here(data)
    assert [found[:3] for found in about(report, "log")] == [("blocks", False, 1)]
    # A fork is looked at by its own records, which are elsewhere.
    assert about(report, "fork") == []


def test_a_forged_signature_is_found(data: Path) -> None:
    other = Ed25519PrivateKey.from_private_bytes(b"\2" * 32)
    with Engine.open(data, background=False) as engine:
        forged = signed("author", b'{"a":2}').replace(b'"authorPubkey":"8', b'"authorPubkey":"9')
        author = engine.log("author")
        author.append(
            Batch(
                [b'{"a":1}', b'{"a":2}', b'{"a":2}', b'{"a":3}'],
                metas=[
                    signed("another log", b'{"a":1}'),
                    forged,
                    signed("author", b'{"a":2}', other),
                    signed("author", b'{"a":2}'),
                ],
            )
        ).wait()
    assert about(audit_here(data), "author") == [("proofs", False, 3, 3)]


def test_regular_documents_are_signed_as_a_whole(data: Path) -> None:
    signer = Signer("01" * 32)
    proofs = [sign(signer, "members", {"a": n}, DOCUMENT_DOMAIN) for n in (1, 2)]
    with Engine.open(data, background=False) as engine:
        engine.create("members").wait()
        metas = [meta_of(proof) for proof in proofs]
        engine.log("members").append(Batch([b'{"a":1}', b'{"a":3}'], metas=metas)).wait()
    assert about(audit_here(data), "members") == [("proofs", False, 2, 1)]


def change_lake(lake: Lake, data: Path, change: Callable[[Any], Any], erasures: int = 1) -> None:
    with history_of(data) as history:
        fill(lake, history, change, erasures=erasures)


def test_rows_that_the_lake_lacks_has_otherwise_or_twice_are_named(data: Path, tmp_path: Path) -> None:
    def change(table: Any) -> Any:
        if table.num_rows and table.column("log")[0].as_py() == "log":
            table = table.filter(pc.invert(pc.is_in(table.column("seq"), pa.array([10, 11, 40]))))
            keys = table.column("key").to_pylist()
            keys[0] = "another"
            table = table.set_column(4, table.schema.field("key"), pa.array(keys, pa.string()))
            table = pa.concat_tables([table, table.slice(1, 1)])
        return table

    lake = Lake.at(tmp_path / "lake")
    change_lake(lake, data, change)
    report = audit_here(data, lake)
    assert about(report, "log") == [("lake", False, 1, 4), ("copies", False, 2, 1)]
    found, copies = [finding for finding in report.findings if finding.log]
    assert "3 missing (seqs 10 to 11, 40); 1 different (seqs 1)" in found.detail
    assert "1 rows are extra copies (seqs 2); run strandline pipeline audit --repair to remove them" in copies.detail


def test_what_was_deleted_must_go_from_the_lake_once_it_was_told(data: Path, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with history_of(data) as history:
        fill(lake, history, erasures=1)
    with Engine.open(data, background=False) as engine:
        engine.log("log").delete(key="k").wait()
        engine.log("empty").drop().wait()
        engine.log("author").drop().wait()
    assert audit_here(data, lake).ok
    with history_of(data) as history:
        layout.records(lake).snapshot().commit(progress={"erasures": history.log("__erasures__").head})
    report = audit_here(data, lake)
    assert about(report, "log") == [("lake", False, 1, 58)]
    assert about(report, "author") == [("lake", False, None, 2)]


def test_what_a_cap_took_or_a_queue_has_done_with_may_stay_in_the_lake(data: Path, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with history_of(data) as history:
        fill(lake, history, erasures=1)
    with Engine.open(data, background=False) as engine:
        engine.log("capped").append(Batch([b"x", b"y"])).wait()
        engine.log("log").delete(seqs=[20, 21], erasure=False).wait()
    assert audit_here(data, lake).ok


def test_a_lake_that_goes_beyond_the_log_is_not_its_lake(data: Path, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with history_of(data) as history:
        fill(lake, history, erasures=1)
        epoch = history.log("capped").epoch
    layout.records(lake).snapshot().commit(progress={str(epoch): 12})
    assert about(audit_here(data, lake), "capped") == [("lake", False, 11, 2)]


def test_known_losses_are_told_and_are_nothing_to_mend(data: Path) -> None:
    with Engine.open(data, background=False) as engine:
        log = engine.log("log")
        log.skip(5, "lost").wait()
        log.append(Batch([b"1"])).wait()
    report = audit_here(data)
    assert report.ok
    assert about(report, "log") == [("gaps", True, 63, 5)]


def test_an_audit_on_spark_finds_the_same_and_writes_it_down(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    change_lake(lake, data, lambda table: table.slice(1) if table.num_rows == 2 else table)
    with Engine.open(data, background=False) as engine:
        engine.log("author").append(Batch([b'{"a":1}'], metas=[signed("author", b"{}")])).wait()
    flip(min((data / "segments").iterdir()), 0.4)
    here, there = audit_here(data, lake), audit_here(data, lake, workers=SparkWorkers(spark))
    assert sorted(there.findings, key=msgspec.json.encode) == sorted(here.findings, key=msgspec.json.encode)
    assert {(finding.check, finding.log) for finding in there.findings if not finding.ok and finding.log} == {
        ("blocks", "log"),
        ("proofs", "author"),
        ("lake", "author"),
        ("lake", "fork"),
    }
    write_report(lake, here)
    write_report(lake, there)
    table = pa.table(layout.audit(lake).open().to_pyarrow_table())
    assert set(table.column("run").to_pylist()) == {here.run, there.run}
    rows = [row for row in table.to_pylist() if row["run"] == there.run and row["log"] == "author" and not row["ok"]]
    assert sorted((row["check"], row["first_seq"], row["count"]) for row in rows) == [("lake", 1, 1), ("proofs", 3, 1)]


Step = Callable[[Engine, Log], object]
steps: st.SearchStrategy[Step] = st.one_of(
    st.integers(1, 5).map(lambda n: lambda engine, log: log.append(Batch([b"x"] * n, keys=["a"] * n))),
    st.just(lambda engine, log: engine.seal()),
    st.just(lambda engine, log: engine.maintain()),
    st.integers(0, 12).map(lambda n: lambda engine, log: log.delete(before=n)),
    st.lists(st.integers(1, 20), max_size=4).map(lambda s: lambda engine, log: log.delete(seqs=s)),
    st.lists(st.integers(1, 20), max_size=4).map(lambda s: lambda engine, log: log.hide(seqs=s)),
    st.lists(st.integers(1, 20), max_size=4).map(lambda s: lambda engine, log: log.restore(seqs=s)),
    st.integers(1, 3).map(lambda n: lambda engine, log: log.skip(n, "lost")),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(steps, max_size=14), st.integers(0, 6))
def test_whatever_is_done_to_a_log_it_is_found_sound(changes: list[Step], cap: int) -> None:
    with TemporaryDirectory() as directory, Engine.open(directory, background=False) as engine:
        log = engine.create("log", Config(cap_records=cap)).wait()
        for change in changes:
            change(engine, log)
        fork = engine.fork("fork", log, log.state().head // 2).wait()
        for change in changes[:3]:
            change(engine, fork)
        engine.flush()
        assert [finding for finding in audit_here(Path(directory)).findings if not finding.ok] == []
