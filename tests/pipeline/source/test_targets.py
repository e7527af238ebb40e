from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.engine import Batch, Config, Engine
from strandline.engine.errors import UnknownLog
from strandline.history.remote import ProgressConflict
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.targets import CannotAppend, DirectoryTarget, open_target


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "data", background=False) as engine:
        yield engine


def table(*data: bytes, **columns: Any) -> Any:
    return pa.table({"data": pa.array(data, pa.binary()), **columns})


def read(engine: Engine, name: str) -> list[bytes]:
    log = engine.find(name)
    return [] if log is None else [record.data for record in log.read(0, 1000)]


def test_records_and_progress_are_there_together(engine: Engine) -> None:
    target = DirectoryTarget(engine)
    assert target.append("a", table(b"1", b"2", key=["k", None]), "w", None, {"s": 2}).count == 2
    assert target.progress("a", "w") == {"s": 2}
    assert target.append("a", table(b"3"), "w", {"s": 2}, {"s": 3}).first == 3
    assert read(engine, "a") == [b"1", b"2", b"3"]


def test_who_takes_progress_for_something_else_appends_nothing(engine: Engine) -> None:
    target = DirectoryTarget(engine)
    target.append("a", table(b"1"), "w", None, {"s": 1})
    for before in (None, {"s": 2}):
        with pytest.raises(ProgressConflict) as conflict:
            target.append("a", table(b"2"), "w", before, {"s": 2})
        assert conflict.value.progress == {"s": 1}
    assert read(engine, "a") == [b"1"]
    assert target.forget("a", "w")
    assert not target.forget("a", "w")
    assert target.progress("a", "w") is None


def test_what_a_log_does_not_hold_is_refused(engine: Engine) -> None:
    target = DirectoryTarget(engine)
    with pytest.raises(CannotAppend, match="log 'a' requires JSON, but the data b'nope' is invalid"):
        target.append("a", table(b"1", b"nope"))
    assert read(engine, "a") == []
    engine.create("bytes", Config(attributes={"streams": {"content_type": "text/plain"}})).wait()
    target.append("bytes", table(b"nope"))
    with pytest.raises(CannotAppend, match="the meta"):
        target.append("bytes", table(b"x", meta=pa.array([b"nope"], pa.binary())))
    with pytest.raises(CannotAppend, match="internal log of the server"):
        target.append("__erasures__", table(b"1"))
    with pytest.raises(UnknownLog):
        target.append("absent", table(b"1"), create=False)


@pytest.mark.parametrize("note", ["closed", "gone", "registry", "profile", "collection", "table"])
def test_a_log_that_only_its_own_protocol_appends_to_is_left_alone(engine: Engine, note: str) -> None:
    registry = b'{"currentVersion":1}'  # one without a schema is for searches only
    engine.create("s", notes={note: registry if note == "registry" else b"{}"}, batch=Batch([b"1"])).wait()
    with pytest.raises(CannotAppend, match="cannot append to log 's'"):
        DirectoryTarget(engine).append("s", table(b"2"))


def test_a_directory_that_somebody_has_open_is_left_alone(engine: Engine, tmp_path: Path) -> None:
    with (
        pytest.raises(CannotAppend, match="is in use, probably by a server"),
        open_target(LogLocation(path=str(tmp_path / "data"))),
    ):
        pass
