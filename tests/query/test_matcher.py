from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.query.bound import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB, bind_filter
from strandline.query.config import Binding, Field, SearchConfig
from strandline.query.language import parse
from strandline.query.matcher import SCREENED_TOGETHER, filter_rows, matcher
from strandline.query.values import tokens, values_of

#: A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def field(name: str, kind: str, *places: tuple[int, str], **settings: Any) -> Field:
    bindings = tuple(Binding(version, pointer) for version, pointer in places)
    return Field(name, kind, bindings, exact=True, column=True, **settings)  # type: ignore[arg-type]


LEVEL = field("level", "keyword", (1, "/level"), (2, "/info/level"))
SHOP = field("shop", "keyword", (1, "/info/shop/0"), normalizer="lowercase_v1")
STATUS = field("status", "integer", (1, "/status"))
TOOK = field("took", "float", (2, "/took"))
AT = field("at", "date", (1, "/info/at"))
OK = field("ok", "bool", (1, "/ok"))
NOTE = field("note", "text", (1, "/note"))
WHOLE = field("whole", "keyword", (1, ""))
ODD = field("odd", "keyword", (1, '/q"'))
FIELDS = (LEVEL, SHOP, STATUS, TOOK, AT, OK, NOTE, WHOLE, ODD)
CONFIG = SearchConfig(fields={each.name: each for each in FIELDS})


def matches(text: str, document: object, version: int = 1) -> bool:
    bound = bind_filter(parse(text), CONFIG)
    found = matcher(bound)(document, version)
    assert (filter_rows(bound, [json.dumps(document).encode()], [version]) == [0]) is found
    return found


def test_a_keyword_equals_the_whole_value() -> None:
    assert matches("level:error", {"level": "error"})
    assert not matches("level:error", {"level": "Error"})
    assert not matches("level:error", {"level": "errors"})


def test_any_value_of_an_array_suffices() -> None:
    assert matches("level:b", {"level": ["a", ["b"]]})
    assert matches("status:>5 status:<2", {"status": [1, 9]})


def test_numbers_are_compared_as_numbers() -> None:
    assert matches("status:>=500", {"status": "503"})
    assert not matches("status:>500", {"status": 500})
    assert matches("took:<1", {"took": 0.5}, 2)
    big = 2**63
    assert matches(f"status:>{big}", {"status": big + 1})
    assert not matches(f"status:{big}", {"status": big + 1})


def test_dates_are_compared_as_moments() -> None:
    after = 'at:>"2026-03-25T10:00:00+02:00"'
    assert matches(after, {"info": {"at": "2026-03-25T08:00:00.001Z"}})
    assert not matches(after, {"info": {"at": "2026-03-25T08:00:00Z"}})


def test_bools() -> None:
    assert matches("ok:true", {"ok": True})
    assert matches("ok:true", {"ok": "true"})
    assert not matches("ok:true", {"ok": 1})


@pytest.mark.parametrize("document", [{}, {"status": None}, {"status": "x"}, {"status": {}}, {"status": [None, []]}])
def test_having_a_field_means_having_a_value(document: object) -> None:
    assert not matches("has:status", document)
    assert matches("-has:status", document)
    assert matches("has:status", {"status": 0})


def test_having_a_text_means_having_a_string() -> None:
    assert matches("has:note", {"note": ""})
    assert not matches("has:note", {"note": 5})


def test_each_record_is_looked_at_by_its_own_version() -> None:
    document = {"level": "old", "info": {"level": "new"}, "took": 1}
    assert matches("level:old", document, 1)
    assert matches("level:new", document, 2)
    assert not matches("level:old", document, 3)
    # Records without a schema count as records of the first version.
    assert matches("level:old", document, 0)
    assert not matches("has:took", document, 1)
    assert matches("has:took", document, 2)


@pytest.mark.parametrize("document", [None, 5, "error", ["error"], [{"level": "error"}]])
def test_what_is_no_object_never_matches(document: object) -> None:
    assert not matches("level:error", document)
    assert not matches("-level:error", document)


def test_a_payload_that_is_no_json_never_matches() -> None:
    bound = bind_filter(parse("-level:error"), CONFIG)
    data = [b"{}", b"nope", b'{"level":', b"\xff", b"", b'{"level":"x"}', b"[" * 5000]
    assert filter_rows(bound, data, [1] * len(data)) == [0, 5]


def test_words_of_a_text() -> None:
    document = {"note": ["Card declined twice", "by the bank"]}
    texts = {
        TextB(NOTE, ("declined",)): True,
        TextB(NOTE, ("twice", "card")): True,
        TextB(NOTE, ("card", "bank")): False,
        TextB(NOTE, ("decl",)): False,
        TextB(NOTE, ("decl",), prefix=True): True,
        TextB(NOTE, ("card", "declined"), phrase=True): True,
        TextB(NOTE, ("declined", "card"), phrase=True): False,
        TextB(NOTE, ("card", "twice"), phrase=True): False,
        TextB(NOTE, ("declined", "tw"), phrase=True, prefix=True): True,
        TextB(NOTE, ("twice", "by"), phrase=True): False,
    }
    assert {bound: matcher(bound)(document, 1) for bound in texts} == texts


def test_beginnings_of_keywords() -> None:
    assert matcher(PrefixB(LEVEL, "err"))({"level": ["warn", "error"]}, 1)
    assert not matcher(PrefixB(LEVEL, "err"))({"level": "terror"}, 1)


def test_indexes_are_those_of_the_whole_batch() -> None:
    count = 3 * SCREENED_TOGETHER + 7
    data = [
        json.dumps({"level": "a" if index % 50 else "b", "info": {"level": "c"}}).encode() for index in range(count)
    ]
    bound = bind_filter(parse("level:b OR level:c"), CONFIG)
    versions = [1] * 100 + [2] * (count - 100)
    assert filter_rows(bound, data, versions) == [0, 50, *range(100, count)]


def test_an_empty_batch_has_no_matches() -> None:
    assert filter_rows(HasB(LEVEL), [], []) == []


words = st.sampled_from(["a", "b", "A", "ab", "k", "\N{KELVIN SIGN}", "é", 'a"', "a b", "1", "true", ""])
raw_scalars = st.one_of(
    words, st.integers(-2, 2), st.sampled_from([2**64, 2**70, 0.5, 1.0, "1", "0.5"]), st.booleans(), st.none()
)
raw_values = st.recursive(raw_scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
inner_documents = st.one_of(
    st.fixed_dictionaries(
        {}, optional={"level": raw_values, "shop": st.one_of(raw_values, st.lists(words)), "at": raw_values}
    ),
    raw_values,
)
documents = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("level", "status", "took", "ok", "note", 'q"'), raw_values),
            "info": inner_documents,
        },
    ),
    raw_values,
)

boundary_values: dict[str, st.SearchStrategy[Any]] = {
    "keyword": words,
    "integer": st.integers(-2, 2) | st.just(2**64),
    "float": st.sampled_from([0.5, 1.0, 2.0]),
    "date": st.integers(-2, 2),
    "bool": st.booleans(),
}


def clauses(each: Field) -> st.SearchStrategy[Bound]:
    has = st.just(HasB(each))
    if each.kind == "text":
        several = st.lists(st.sampled_from(["a", "b", "1"]), min_size=1, max_size=2).map(tuple)
        return has | st.builds(TextB, st.just(each), several, st.booleans(), st.booleans())
    value = boundary_values[each.kind]
    if each.kind == "keyword":
        value = value.map(each.normalise)
        return st.one_of(has, st.builds(EqualB, st.just(each), value), st.builds(PrefixB, st.just(each), value))
    operators = st.sampled_from([">", ">=", "<", "<="])
    return st.one_of(has, st.builds(EqualB, st.just(each), value), st.builds(RangeB, st.just(each), operators, value))


def composed(children: st.SearchStrategy[Bound]) -> st.SearchStrategy[Bound]:
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(AndB, several), st.builds(OrB, several), st.builds(NotB, children))


queries = st.recursive(st.sampled_from(FIELDS).flatmap(clauses), composed, max_leaves=5)


def obviously(bound: Bound, document: object, version: int) -> bool:
    """What a query means, as plainly as it can be said."""
    match bound:
        case AndB(children):
            return all(obviously(child, document, version) for child in children)
        case OrB(children) | AnyOfB(children):
            return any(obviously(child, document, version) for child in children)
        case NotB(child):
            return not obviously(child, document, version)
    found: list[Any] = values_of(bound.field, document, version)
    match bound:
        case HasB():
            return found != []
        case EqualB(_, wanted):
            return wanted in found
        case RangeB(_, op, limit):
            less, equal = any(value < limit for value in found), limit in found
            greater = any(value > limit for value in found)
            return {"<": less, "<=": less or equal, ">": greater, ">=": greater or equal}[op]
        case PrefixB(_, prefix):
            return any(value[: len(prefix)] == prefix for value in found)
    return any(text_matches(bound, tokens(text)) for text in found)


def text_matches(bound: TextB, found: list[str]) -> bool:
    wanted = bound.tokens
    fits = [
        [word == each or (bound.prefix and place == len(wanted) - 1 and word.startswith(each)) for word in found]
        for place, each in enumerate(wanted)
    ]
    if bound.phrase:
        return any(
            all(start + place < len(found) and fits[place][start + place] for place in range(len(wanted)))
            for start in range(len(found))
        )
    return all(map(any, fits))


@PATIENT
@given(queries, documents, st.integers(0, 3))
def test_a_matcher_means_what_the_query_says(bound: Bound, document: object, version: int) -> None:
    expected = isinstance(document, dict) and obviously(bound, document, version)
    assert matcher(bound)(document, version) == expected


@PATIENT
@given(
    queries,
    st.lists(st.tuples(documents, st.booleans()), max_size=6),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_filtering_raw_records_finds_what_matching_decoded_ones_does(
    bound: Bound, records: list[tuple[object, bool]], versions: list[int]
) -> None:
    data = [json.dumps(document, ensure_ascii=escaped).encode() for document, escaped in records]
    versions = sorted(versions[: len(data)])
    test = matcher(bound)
    expected = [index for index, (document, _) in enumerate(records) if test(document, versions[index])]
    assert filter_rows(bound, data, versions) == expected
    # One at a time, a record is screened by its own bytes alone.
    alone = [index for index in range(len(data)) if filter_rows(bound, [data[index]], [versions[index]])]
    assert alone == expected
