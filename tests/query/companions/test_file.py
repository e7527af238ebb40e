"""The file of a companion: it says what was put in, or that it is damaged."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.index_files import made_of
from support.searched_log import CONFIG, encode

from strandline.query.chunk import Chunk
from strandline.query.columns import AnyColumn, HistogramColumn, KeywordColumn, NumberColumn, TextColumn
from strandline.query.extraction import Extractor
from strandline.query.index import plan_of
from strandline.query.index_files import file
from strandline.query.index_files.file import MAGIC, DamagedIndexFile, open_index_file, read_index_file

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**90), 2**90), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "at": st.integers(0, 2**40),
        "service": st.one_of(scalars, st.lists(st.text(max_size=3), max_size=3)),
        "tags": st.lists(st.text(max_size=2), max_size=3),
        "status": st.one_of(scalars, st.lists(st.integers(-(2**70), 2**70), max_size=2)),
        "took": scalars,
        "ok": scalars,
        "note": st.one_of(st.text(), st.lists(st.sampled_from(["a b", "b a b", "", "Ä ö"]), max_size=2)),
        "p": st.just({"count": 1, "sum": 2.5, "min": 1, "max": 2, "buckets": {"1": 1, "é": 2}}),
    },
)


def values_of(column: AnyColumn) -> list[Any]:
    if isinstance(column, NumberColumn):
        return list(zip(map(type, column.values.tolist()), column.values.tolist(), strict=True))
    words = column.words.to_pylist()
    if isinstance(column, TextColumn):
        plain = column.plain()
        tokens = [words[code] for code in plain.tokens.tolist()]
        return [tokens[low:high] for low, high in zip(plain.bounds[:-1], plain.bounds[1:], strict=True)]
    assert isinstance(column, KeywordColumn)
    values: list[Any] = [words[code] for code in column.codes.tolist()]
    return list(zip(values, column.weights, strict=True)) if isinstance(column, HistogramColumn) else values


def content_of(chunk: Chunk) -> dict[str, Any]:
    return {
        name: (values_of(column), None if column.rows is None else column.rows.tolist())
        for name, column in chunk.columns.items()
    }


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(documents, max_size=20))
def test_what_is_read_is_what_would_have_been_indexed(found: list[Any]) -> None:
    payloads = [encode(document) for document in found]
    companion = read_index_file(made_of(payloads).content)
    plan = plan_of(CONFIG)
    extracted = Extractor(plan.fields, plan.histograms).extract(payloads, 1)
    chunk = companion.chunk()
    if chunk is None:
        assert not extracted.rows
        return
    assert chunk.seqs.tolist() == [row + 1 for row in extracted.rows]
    assert content_of(chunk) == content_of(Chunk(chunk.seqs, extracted.columns))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(documents, min_size=1, max_size=20), st.data())
def test_words_are_found_where_they_are(found: list[Any], data: st.DataObject) -> None:
    payloads = [encode(document) for document in found]
    chunk = read_index_file(made_of(payloads).content).chunk()
    assert chunk is not None
    plan = plan_of(CONFIG)
    plain = Extractor(plan.fields, plan.histograms).extract(payloads, 1).columns
    for name in ("service", "tag"):
        posted, column = chunk.columns[name], plain[name]
        assert isinstance(posted, KeywordColumn)
        assert isinstance(column, KeywordColumn)
        word = data.draw(st.sampled_from([*column.words.to_pylist(), "nowhere", ""]))
        assert posted.equal(word).rows.tolist() == column.equal(word).rows.tolist()
        assert posted.starting(word[:1]).rows.tolist() == column.starting(word[:1]).rows.tolist()


def test_of_many_words_each_is_looked_up(tmp_path: Path) -> None:
    pick = Random(3)
    payloads = [
        encode({"tags": f"t{pick.randrange(2000)}", "note": f"n{number % 700} n{number % 3}"}) for number in range(3000)
    ]
    chunk = read_index_file(made_of(payloads).content).chunk()
    plan = plan_of(CONFIG)
    plain = Extractor(plan.fields, plan.histograms).extract(payloads, 1).columns["tag"]
    assert chunk is not None
    posted = chunk.columns["tag"]
    assert isinstance(posted, KeywordColumn)
    assert isinstance(plain, KeywordColumn)
    assert len(posted.words) > 256
    for word in ("t1", "t17", "t1999", "t2000", "u"):
        assert posted.equal(word).rows.tolist() == plain.equal(word).rows.tolist()
        assert posted.starting(word).rows.tolist() == plain.starting(word).rows.tolist()


def test_all_seqs_are_an_array_of_the_file_although_ranges_are_stored() -> None:
    payloads = [b"{}", b"5", b"{}", b"{}", b"no JSON", b"{}"]
    companion = read_index_file(made_of(payloads, first=7).content)
    assert companion.array("seqs").tolist() == [7, 9, 10, 12]
    assert companion.array("firsts").tolist() == [7, 9, 12]
    assert read_index_file(made_of([b"5"]).content).array("seqs").tolist() == []


def test_a_companion_without_records_answers_for_its_range() -> None:
    companion = read_index_file(made_of([b"5", b"no JSON"]).content)
    assert (companion.info.first, companion.info.last, companion.info.records) == (1, 3, 0)
    assert companion.chunk() is None


def test_a_damaged_byte_is_found_wherever_it_is_or_changes_nothing(tmp_path: Path) -> None:
    payloads = [
        encode({"at": n * 1000, "service": f"s{n}", "status": n, "note": f"red {n}", "took": 1.5}) for n in range(40)
    ]
    content = bytes(made_of(payloads).content)
    sound = read_index_file(content)
    expected = everything(sound)
    path, pick, found = tmp_path / "damaged.arrow", Random(1), 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[pick.randrange(len(damaged))] ^= 1 << pick.randrange(8)
        path.write_bytes(damaged)
        try:
            companion = open_index_file(str(path))
            assert everything(companion) == expected
        except DamagedIndexFile:
            found += 1
    assert found > 100


def test_a_file_that_was_cut_off_or_is_something_else_is_refused(tmp_path: Path) -> None:
    content = bytes(made_of([encode({"status": 1})]).content)
    for wrong in (content[: len(content) // 2], content[: content.rfind(MAGIC) + 50], b"", b"something else"):
        (tmp_path / "wrong.arrow").write_bytes(wrong)
        with pytest.raises(DamagedIndexFile):
            open_index_file(str(tmp_path / "wrong.arrow"))
    other = pa.BufferOutputStream()
    with pa.ipc.new_file(other, pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [1]}))
    with pytest.raises(DamagedIndexFile, match="not an index file"):
        read_index_file(other.getvalue())
    with pytest.raises(FileNotFoundError):
        open_index_file(str(tmp_path / "absent.arrow"))


def test_a_file_of_another_format_must_be_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "FORMAT", 1)
    content = made_of([encode({"status": 1})]).content
    monkeypatch.undo()
    with pytest.raises(DamagedIndexFile, match="has format 1, and this release reads format 2; build it again"):
        read_index_file(content)


def test_anybody_can_read_the_file_as_arrow(tmp_path: Path) -> None:
    content = made_of([encode({"status": number, "service": "api"}) for number in range(5)]).content
    table = pa.ipc.open_file(content).read_all()
    assert table["column:status:values"].to_pylist() == [[0, 1, 2, 3, 4]]
    assert table["column:service:words"].to_pylist() == [["api"]]
    assert table["column:status:packing"].to_pylist() == [[0, 0, 4]]
    assert (table["firsts"].to_pylist(), table["places"].to_pylist()) == ([[1]], [[0]])
    # Another implementation, which insists on metadata being text.
    (tmp_path / "companion.arrow").write_bytes(content)
    assert polars.read_ipc(tmp_path / "companion.arrow")["firsts"].to_list() == [[1]]


def everything(companion: Any) -> Any:
    chunk = companion.chunk()
    rollups = [
        [each.starts.tolist(), [codes.tolist() for codes in each.codes], each.words, str(each.measures)]
        for stored in companion.head.rollups
        for milliseconds in stored.intervals
        if (each := companion.sums(stored.id, milliseconds)) is not None
    ]
    return companion.info, chunk.seqs.tolist(), content_of(chunk), rollups, companion.sizes()
