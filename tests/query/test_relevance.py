"""Scores are BM25, as tantivy computes it, and stay put while a log grows a little."""

from __future__ import annotations

import random

import pytest
import tantivy
from support.searched_log import Bed

from strandline.query.relevance import mark_of


@pytest.fixture(scope="module")
def notes() -> list[str]:
    pick = random.Random(7)
    words = ["red", "green", "blue", "reddish", "gold", "grey", "tin"]
    return [" ".join(pick.choices(words, weights=range(7, 0, -1), k=pick.randrange(1, 12))) for _ in range(200)]


def tantivy_scores(notes: list[str], make) -> dict[int, float]:
    schema = (
        tantivy.SchemaBuilder().add_text_field("note", tokenizer_name="default").add_unsigned_field("seq", fast=True)
    ).build()
    index = tantivy.Index(schema)
    writer = index.writer(15_000_000, 1)
    for seq, note in enumerate(notes, 1):
        document = tantivy.Document()
        document.add_text("note", note)
        document.add_unsigned("seq", seq)
        writer.add_document(document)
    writer.commit()
    index.reload()
    searcher = index.searcher()
    hits = searcher.search(make(schema), limit=len(notes)).hits
    seqs = searcher.fast_field_values("seq", [address for _, address in hits])
    return dict(zip(seqs, [score for score, _ in hits], strict=True))


@pytest.mark.parametrize(
    ("query", "make"),
    [
        ("note:gold", lambda schema: tantivy.Query.term_query(schema, "note", "gold")),
        ("note:gold-tin", lambda schema: both(schema, "gold", "tin")),
        ("note:gold note:tin", lambda schema: both(schema, "gold", "tin")),
        ('note:"red green"', lambda schema: tantivy.Query.phrase_query(schema, "note", ["red", "green"])),
    ],
)
def test_texts_score_as_tantivy_scores_them(logs: Bed, notes: list[str], query: str, make) -> None:
    # Up to a power of two, so that all records count for the statistics.
    notes = notes[:192]
    logs.append(*[{"note": note} for note in notes])
    found = {hit.seq: hit.score for hit in logs.search(query, size=500).hits}
    expected = tantivy_scores(notes, make)
    assert found.keys() == expected.keys()
    assert [found[seq] for seq in sorted(found)] == pytest.approx([expected[seq] for seq in sorted(found)], rel=1e-4)


def both(schema: tantivy.Schema, *words: str) -> tantivy.Query:
    terms = [(tantivy.Occur.Must, tantivy.Query.term_query(schema, "note", word)) for word in words]
    return tantivy.Query.boolean_query(terms)


def test_rare_words_and_short_texts_count_more(logs: Bed) -> None:
    logs.append({"note": "common rare"}, {"note": "common"}, {"note": "common common padding padding padding padding"})
    assert logs.seqs("rare OR common")[0] == 1
    scores = {hit.seq: hit.score for hit in logs.search("note:common").hits}
    assert scores[2] > scores[1]


def test_the_best_value_of_a_record_counts(logs: Bed) -> None:
    logs.append({"note": ["red", "red and much else besides"]}, {"note": "red"}, {"note": ["gold", "tin"]})
    scores = {hit.seq: hit.score for hit in logs.search("note:red").hits}
    assert scores[1] == scores[2]
    assert logs.seqs("note:gold-tin") == []


def test_boosts_multiply_and_keywords_found_by_bare_terms_score_their_boost(logs: Bed) -> None:
    logs.append({"note": "red"}, {"service": "red"}, {"note": "other"})
    plain = logs.search("note:red").hits[0].score
    scores = {hit.seq: hit.score for hit in logs.search("red").hits}
    assert scores == {1: pytest.approx(2 * plain), 2: 3.0}
    assert {hit.score for hit in logs.search("service:red").hits} == {0.0}


def test_and_and_or_add_and_not_adds_nothing(logs: Bed) -> None:
    logs.append({"note": "red gold", "status": 1}, {"note": "red", "status": 2}, {"note": "tin"})

    def score(query: str) -> float:
        return next(hit.score for hit in logs.search(query).hits if hit.seq == 1)

    red, gold = score("note:red"), score("note:gold")
    assert score("note:red note:gold") == pytest.approx(red + gold)
    assert score("note:red OR note:gold") == pytest.approx(red + gold)
    assert score("note:red NOT note:tin") == pytest.approx(red)
    assert score("NOT note:tin") == 0.0
    assert score("note:red status:1") == pytest.approx(red)


def test_scores_stay_the_same_until_the_log_has_grown_by_an_eighth(logs: Bed) -> None:
    logs.append(*[{"note": "red gold"}] * 64)
    before = logs.search("note:red", size=1, sort=["offset:asc"]).hits[0].score
    logs.append(*[{"note": "red"}] * 7)
    assert logs.search("note:red", size=1, sort=["offset:asc"]).hits[0].score == before
    assert len(logs.seqs("note:red", size=500)) == 71
    logs.append({"note": "red"})
    assert logs.search("note:red", size=1, sort=["offset:asc"]).hits[0].score != before


def test_the_mark_moves_in_steps_of_an_eighth_or_less() -> None:
    marks = [mark_of(head) for head in range(3000)]
    assert all(mark <= head < mark * 9 / 8 + 1 for head, mark in enumerate(marks))
    assert marks == sorted(marks)
    assert len(set(marks[1024:2048])) == 8
