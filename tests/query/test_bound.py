from __future__ import annotations

import pytest

from strandline.query.bound import (
    AndB,
    AnyOfB,
    Bound,
    EqualB,
    HasB,
    NotB,
    OrB,
    PrefixB,
    RangeB,
    TextB,
    bind_filter,
    bind_search,
)
from strandline.query.config import Binding, DefaultField, Field, Kind, SearchConfig
from strandline.query.errors import BadQuery
from strandline.query.language import parse


def field(name: str, kind: Kind, *flags: str, normalizer: str | None = None) -> Field:
    return Field(name, kind, (Binding(1, f"/{name}"),), normalizer=normalizer, **dict.fromkeys(flags, True))


LEVEL = field("level", "keyword", "exact", "prefix", normalizer="lowercase_v1")
PATH = field("path", "keyword", "prefix")
PLAIN = field("plain", "keyword")
CODE = field("code", "keyword", "column", "exists")
STATUS = field("status", "integer", "exact", "column")
SIZE = field("size", "integer", "exact")
LOOSE = field("loose", "float", "sortable")
AT = field("at", "date", "column")
OK = field("ok", "bool", "exact", "column")
NOTE = field("note", "text", "positions", "prefix", "exists")
TITLE = field("title", "text")
FIELDS = {f.name: f for f in (LEVEL, PATH, PLAIN, CODE, STATUS, SIZE, LOOSE, AT, OK, NOTE, TITLE)}
CONFIG = SearchConfig(fields=FIELDS, aliases={"lvl": "level", "ts": "at"})


def searching(text: str, *defaults: DefaultField) -> Bound:
    return bind_search(parse(text), SearchConfig(fields=CONFIG.fields, aliases=CONFIG.aliases, default_fields=defaults))


def filtering(text: str) -> Bound:
    return bind_filter(parse(text, "filter"), CONFIG)


def test_the_shape_of_a_query_stays() -> None:
    error = EqualB(LEVEL, "error")
    assert filtering("level:error") == error
    expected = OrB((AndB((error, NotB(error))), HasB(LEVEL)))
    assert filtering("level:error -level:error OR has:level") == expected
    assert searching("level:error -level:error OR has:level") == expected


def test_aliases_stand_for_their_fields_everywhere() -> None:
    assert filtering("lvl:error has:lvl ts:>5") == filtering("level:error has:level at:>5")
    assert searching("lvl:error has:lvl ts:>5") == searching("level:error has:level at:>5")


@pytest.mark.parametrize("bind", [searching, filtering])
def test_values_are_canonical(bind: type) -> None:
    assert bind("level:ERROR") == EqualB(LEVEL, "error")
    assert bind("status:503") == EqualB(STATUS, 503)
    assert bind("status:=503") == EqualB(STATUS, 503)
    assert bind('status:<"-5"') == RangeB(STATUS, "<", -5)
    assert bind('at:>="2026-03-25T10:00:00Z"') == RangeB(AT, ">=", 1774432800000)
    assert bind("at:1774432800000") == EqualB(AT, 1774432800000)
    assert bind("ok:true") == EqualB(OK, True)
    assert bind(f"status:{2**70}") == EqualB(STATUS, 2**70)


def test_in_a_filter_a_star_is_a_star() -> None:
    assert filtering("level:err*") == EqualB(LEVEL, "err*")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing:1", "filter field nothing is not indexed"),
        ("has:nothing", "filter field nothing is not indexed"),
        ("statsu:1", "filter field statsu is not indexed; did you mean 'status'?"),
        ("contains:x", "filter field contains is not indexed"),
        ("error", "filter term 'error' needs a field"),
        ("path:/a", "filter field path does not support equality filters"),
        ("note:word", "filter field note does not support equality filters"),
        ("lvl:>a", "comparison operator not supported for filter field lvl"),
        ("code:>a", "comparison operator not supported for filter field code"),
        ("ok:>false", "comparison operator not supported for filter field ok"),
        ("size:>1", "comparison operator not supported for filter field size"),
        ("note:>a", "comparison operator not supported for filter field note"),
        ("has:plain", "filter field plain does not support has: filters"),
        ("has:title", "filter field title does not support has: filters"),
        ("status:many", "invalid value for filter field status: expected an integer, not 'many'"),
        ("ts:>soon", "invalid value for filter field ts: expected a time in RFC 3339 or milliseconds, not 'soon'"),
        ("ok:1", "invalid value for filter field ok: expected true or false, not '1'"),
    ],
)
def test_what_a_filter_cannot_ask_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadQuery) as caught:
        filtering(text)
    assert str(caught.value) == message


def test_nothing_can_be_filtered_where_nothing_is_configured() -> None:
    with pytest.raises(BadQuery, match="filter field level is not indexed"):
        bind_filter(parse("level:error"), SearchConfig())


def test_columns_are_enough_for_equality_filters_and_existence() -> None:
    assert filtering("code:A has:code") == AndB((EqualB(CODE, "A"), HasB(CODE)))


@pytest.mark.parametrize("text", ["level:Err*", 'level:"Err*"', "level:=Err*"])
def test_a_star_at_the_end_of_a_keyword_asks_for_its_beginning(text: str) -> None:
    assert searching(text) == PrefixB(LEVEL, "err")


def test_a_star_alone_is_a_value() -> None:
    assert searching("level:*") == EqualB(LEVEL, "*")


def test_the_words_of_a_text_are_looked_for() -> None:
    assert searching("note:Declined") == TextB(NOTE, ("declined",))
    assert searching("note:re-try") == TextB(NOTE, ("re", "try"))
    assert searching("title:re-try") == TextB(TITLE, ("re", "try"))


def test_words_in_quotes_are_a_phrase() -> None:
    assert searching('note:"Card declined"') == TextB(NOTE, ("card", "declined"), phrase=True)


def test_one_word_in_quotes_is_a_word_and_needs_no_positions() -> None:
    assert searching('title:"Declined!"') == TextB(TITLE, ("declined",))


def test_a_star_at_the_end_makes_the_last_word_a_beginning() -> None:
    assert searching("note:decl*") == TextB(NOTE, ("decl",), prefix=True)
    assert searching("note:re-tr*") == TextB(NOTE, ("re", "tr"), prefix=True)
    assert searching('note:"card decl*"') == TextB(NOTE, ("card", "decl"), phrase=True, prefix=True)
    assert searching('note:"card decl *"') == TextB(NOTE, ("card", "decl"), phrase=True)


def test_texts_need_no_capability_for_prefixes() -> None:
    assert not TITLE.prefix
    assert searching("title:de*") == TextB(TITLE, ("de",), prefix=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing:1", "unknown search field nothing"),
        ("statsu:1", "unknown search field statsu; did you mean 'status'?"),
        ("has:nothing", "unknown search field nothing"),
        ("contains:x", "contains: is not supported on _search yet"),
        ("path:/a", "search field path does not support exact queries"),
        ("code:A", "search field code does not support exact queries"),
        ("code:A*", "search field code does not support prefix queries"),
        ('title:"two words"', "search field title does not support phrase queries"),
        ("note:…", "the query for search field note contains no letter or digit"),
        ("lvl:>a", "search field lvl does not support comparisons"),
        ("note:<a", "search field note does not support comparisons"),
        ("size:>1", "search field size does not support comparisons"),
        ("loose:1", "search field loose does not support equality"),
        ("has:plain", "search field plain does not support has:"),
        ("status:many", "invalid value for search field status: expected an integer, not 'many'"),
        ("status:5*", "invalid value for search field status: expected an integer, not '5*'"),
    ],
)
def test_what_a_search_cannot_ask_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadQuery) as caught:
        searching(text)
    assert str(caught.value) == message


def test_texts_can_always_be_asked_whether_they_are_there() -> None:
    assert searching("has:title") == HasB(TITLE)


def test_a_bare_term_is_looked_for_in_all_texts_if_no_defaults_are_configured() -> None:
    assert searching("Declined") == AnyOfB((TextB(NOTE, ("declined",)), TextB(TITLE, ("declined",))))


def test_each_default_field_reads_a_bare_term_by_its_own_rules() -> None:
    bound = searching(
        "404-A", DefaultField("note", 2.0), DefaultField("level", 3.0), DefaultField("status"), DefaultField("title")
    )
    assert bound == AnyOfB(
        (TextB(NOTE, ("404", "a"), boost=2.0), EqualB(LEVEL, "404-a", boost=3.0), TextB(TITLE, ("404", "a")))
    )
    assert searching("404", DefaultField("status", 1.5)) == EqualB(STATUS, 404, boost=1.5)


def test_a_bare_beginning_is_looked_for_where_beginnings_can_be_asked_for() -> None:
    bound = searching("De*", DefaultField("code"), DefaultField("note"), DefaultField("level", 2.0))
    assert bound == AnyOfB((TextB(NOTE, ("de",), prefix=True), PrefixB(LEVEL, "de", boost=2.0)))


def test_a_bare_phrase_is_refused_where_no_default_field_knows_positions() -> None:
    assert searching('"a b"', DefaultField("title"), DefaultField("note")) == TextB(NOTE, ("a", "b"), phrase=True)
    with pytest.raises(BadQuery, match="title does not support phrase queries"):
        searching('"a b"', DefaultField("title"))


def test_a_bare_term_needs_a_field_to_be_looked_for_in() -> None:
    with pytest.raises(BadQuery, match="needs a field"):
        bind_search(parse("error"), SearchConfig(fields={"level": LEVEL}))
