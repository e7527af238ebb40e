"""A query on a chunk means what it means record by record."""

from __future__ import annotations

import string
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.index_files import made_of
from support.searched_log import CONFIG, encode

from strandline.query.bound import bind_search
from strandline.query.chunk import Chunk, join_chunks
from strandline.query.evaluator import evaluate
from strandline.query.extraction import Extractor
from strandline.query.index import plan_of
from strandline.query.index_files.file import read_index_file
from strandline.query.language import parse
from strandline.query.matcher import matcher
from strandline.query.order import SortKey, best_hits, in_order
from strandline.query.relevance import Relevance

PLAN = plan_of(CONFIG)
EXTRACTOR = Extractor(PLAN.fields, PLAN.histograms)

words = st.sampled_from(["red", "green", "re", "reds", "Blue", "été", "x1"])
texts = st.lists(words, max_size=5).map(" ".join)
maybe_many = lambda values: st.one_of(values, st.none(), st.lists(values, max_size=3))  # noqa: E731
documents = st.fixed_dictionaries(
    {},
    optional={
        "service": maybe_many(st.sampled_from(["Api", "api", "api-2", "web", 5])),
        "tags": maybe_many(st.sampled_from(["a", "ab", "b", "ignored"])),
        "status": maybe_many(st.sampled_from([200, 404, 503, "503", 2**70, 1.5])),
        "took": maybe_many(st.sampled_from([0.5, 1, 2.5, "x"])),
        "ok": maybe_many(st.booleans()),
        "at": maybe_many(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02", 0])),
        "note": maybe_many(texts),
        "deep": st.fixed_dictionaries({"title": maybe_many(texts)}),
    },
)
clauses = st.sampled_from(
    [
        "service:api", "service:API", "svc:ap*", "tag:a", "tag:a*", "status:503", "status:>404", "status:<=404",
        f"status:>{2**69}", "took:1", "took:<2", "ok:true", 'at:>="2026-01-02T00:00:00Z"', "has:note", "has:status",
        "has:tag", "note:red", "note:re*", 'note:"red green"', 'note:"green re*"', "title:été", "red", "api", "gre*",
        '"red red"', "note:red-green",
    ]
)  # fmt: skip
queries = st.recursive(
    clauses,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        inner.map(lambda one: f"NOT {one}"),
    ),
    max_leaves=4,
)


def chunk_of(found: list[Any], first: int = 1) -> Chunk:
    extracted = EXTRACTOR.extract([encode(document) for document in found], 1)
    return Chunk(np.arange(first, first + len(found), dtype=np.int64), extracted.columns)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(documents, min_size=1, max_size=12), queries)
def test_a_query_on_a_chunk_finds_the_records_that_it_finds_one_by_one(found, query):
    bound = bind_search(parse(query), CONFIG)
    matches = matcher(bound)
    expected = [matches(msgspec.json.decode(encode(document)), 1) for document in found]
    assert evaluate(bound, chunk_of(found)).mask.tolist() == expected
    relevance = Relevance(bound)
    chunk = chunk_of(found)
    relevance.add(chunk, len(found))
    scored = evaluate(bound, chunk, relevance)
    assert scored.mask.tolist() == expected
    if scored.scores is not None:
        assert scored.mask[scored.scores.rows].all()
        assert (scored.scores.values >= 0).all()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(documents, min_size=1, max_size=5), min_size=1, max_size=4), queries)
def test_how_records_are_cut_into_chunks_changes_nothing(pieces, query):
    bound = bind_search(parse(query), CONFIG)
    chunks, first = [], 1
    for piece in pieces:
        chunks.append(chunk_of(piece, first))
        first += len(piece)
    whole = chunk_of([document for piece in pieces for document in piece])
    parted, joined, together = Relevance(bound), Relevance(bound), Relevance(bound)
    for chunk in chunks:
        parted.add(chunk, first)
    joined_chunk = join_chunks(chunks)
    joined.add(joined_chunk, first)
    together.add(whole, first)
    expected = evaluate(bound, whole, together)
    again = evaluate(bound, joined_chunk, joined)
    separate = [evaluate(bound, chunk, parted) for chunk in chunks]
    assert again.mask.tolist() == expected.mask.tolist()
    assert np.concatenate([each.mask for each in separate]).tolist() == expected.mask.tolist()
    if expected.scores is not None and again.scores is not None:
        everything = np.arange(len(expected.mask))
        assert (
            again.scores.of(everything, len(everything)).tolist()
            == expected.scores.of(everything, len(everything)).tolist()
        )


noted = st.fixed_dictionaries({"note": texts, "service": st.sampled_from(["red", "web"])})
BEST_FIRST = [SortKey("_score", True), SortKey("offset", True)]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(noted, min_size=1, max_size=60),
    st.lists(clauses.filter(lambda clause: clause[0] not in "ost" and "has" not in clause), min_size=1, max_size=3),
    st.sampled_from([" ", " OR ", " NOT "]),
    st.integers(1, 5),
    st.data(),
)
def test_the_best_records_are_the_best_of_all(found, parts, joint, size, data):
    """Also if records that score less than the last hit are left out, in memory and in an index file."""
    bound = bind_search(parse(joint.join(parts)), CONFIG)
    payloads = [encode(document) for document in found] * 8
    gone = np.array([data.draw(st.booleans()) for _ in found] * 8) if data.draw(st.booleans()) else None
    in_file = read_index_file(made_of(payloads).content).chunk()
    expected = None
    for chunk in (chunk_of(found * 8), in_file):
        chunk = chunk.without(gone)
        relevance = Relevance(bound)
        relevance.add(chunk, len(payloads))
        matches = evaluate(bound, chunk, relevance)
        hits = in_order(best_hits(chunk, matches, BEST_FIRST, None, size), BEST_FIRST)
        assert expected is None or hits == expected
        expected = hits
        least = hits[-1].score if hits else 0.1
        few = evaluate(bound, chunk, relevance, least)
        assert in_order(best_hits(chunk, few, BEST_FIRST, None, size), BEST_FIRST) == hits
        assert set(few.found.rows.tolist()) <= set(matches.found.rows.tolist())


def test_texts_that_cannot_score_enough_are_not_examined():
    notes = [{"note": "red " * (1 + number % 50 // 49) + "and much else"} for number in range(1000)]
    chunk = chunk_of(notes)
    bound = bind_search(parse("note:red"), CONFIG)
    relevance = Relevance(bound)
    relevance.add(chunk, 1000)
    best = evaluate(bound, chunk, relevance).scores.values.max()
    assert evaluate(bound, chunk, relevance, float(best)).found.rows.tolist() == list(range(49, 1000, 50))


def test_what_is_gone_matches_nothing_not_even_its_opposite():
    chunk = chunk_of([{"status": 1}, {"status": 2}, {}]).without(np.array([True, False, False]))
    assert evaluate(bind_search(parse("has:status"), CONFIG), chunk).mask.tolist() == [False, True, False]
    assert evaluate(bind_search(parse("NOT status:2"), CONFIG), chunk).mask.tolist() == [False, False, True]


@pytest.mark.parametrize("letter", string.punctuation + string.whitespace)
def test_everything_but_letters_and_digits_parts_words(letter):
    chunk = chunk_of([{"note": f"red{letter}green"}] * 300)
    assert evaluate(bind_search(parse('note:"red green"'), CONFIG), chunk).mask.all()
