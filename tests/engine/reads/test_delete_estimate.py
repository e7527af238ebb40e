"""Which records have a key, and what a delete would take, against a plain look at all records."""

from __future__ import annotations

from tempfile import mkdtemp
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.engine import Batch, Engine
from strandline.engine.reads.keys import NAMED, count_of, estimate_delete, seqs_with

KEYS = st.one_of(st.none(), st.sampled_from(["a", "ab", "b", "ba"]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(KEYS, min_size=1, max_size=5)),
        st.tuples(st.just("delete"), st.integers(1, 20)),
        st.tuples(st.just("seal"), st.none()),
        st.tuples(st.just("fork"), st.none()),
    ),
    max_size=10,
)


@settings(max_examples=60)
@given(steps=STEPS, key=KEYS, prefix=st.sampled_from([None, "a", "b"]), before=st.sampled_from([None, 1, 4, 99]))
def test_what_is_found_is_what_a_look_at_all_records_finds(
    steps: list[tuple[str, Any]],
    key: str | None,
    prefix: str | None,
    before: int | None,
) -> None:
    with Engine.open(mkdtemp(), background=False) as engine:
        log = engine.create("log").wait()
        for what, value in steps:
            if what == "append":
                log.append(Batch([b"data"] * len(value), keys=value)).wait()
            elif what == "delete":
                log.delete(seqs=[value]).wait()
            elif what == "seal":
                engine.seal()
            elif log.name == "log":
                log = engine.fork("fork", log, log.head // 2).wait()
        records = list(log.read(0, 1000))
        if key is not None or prefix is not None:
            wanted = [
                record.seq
                for record in records
                if record.key is not None
                and (key is None or record.key == key)
                and (prefix is None or record.key.startswith(prefix))
            ]
            assert seqs_with(log, key=key, prefix=prefix) == wanted
        counts = {held: tuple(count_of(log, held)) for held in ("a", "ab", "none")}
        by_key = {held: [record.seq for record in records if record.key == held] for held in ("a", "ab", "none")}
        assert counts == {held: (len(seqs), max(seqs, default=0)) for held, seqs in by_key.items()}
        if (key, prefix, before) != (None, None, None):
            weighed = estimate_delete(log, key=key, prefix=prefix, before=before)
            gone = log.delete(key=key, prefix=prefix, before=before).wait()
            left = {record.seq for record in log.read(0, 1000)}
            removed = [record.seq for record in records if record.seq not in left]
            assert (weighed.records, weighed.size) == (gone.count, gone.size)
            assert (weighed.first, weighed.last) == (removed[:NAMED], removed[-1] if removed else 0)


def test_a_log_tells_only_once_that_it_has_changed() -> None:
    with Engine.open(mkdtemp(), background=False) as engine:
        for name in ("one", "two"):
            engine.create(name).wait()
        assert {book.name for book in engine.changed_lately()} == {"one", "two"}
        engine.log("two").append(Batch.of(b"1")).wait()
        assert {book.name for book in engine.changed_lately()} == {"two"}
        assert engine.changed_lately() == set()
        assert {log.name for log in engine.unsealed()} == {"one", "two"}
        engine.seal()
        assert engine.unsealed() == []
