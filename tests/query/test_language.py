from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.query.errors import BadQuery
from strandline.query.language import MAX_CLAUSES, MAX_DEPTH, And, Bare, Compare, Has, Node, Not, Or, parse

#: A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def equal(field: str, value: str) -> Compare:
    return Compare(field, "=", value, quoted=False)


def word(text: str) -> Bare:
    return Bare(text, quoted=False)


def test_a_field_and_a_value() -> None:
    assert parse("level:error") == equal("level", "error")


def test_an_equals_sign_says_the_same() -> None:
    assert parse("level:=error") == parse("level:error")


@pytest.mark.parametrize("op", [">", ">=", "<", "<="])
def test_comparisons(op: str) -> None:
    assert parse(f"status:{op}500") == Compare("status", op, "500", quoted=False)  # type: ignore[arg-type]


def test_spaces_around_signs_do_not_matter() -> None:
    assert parse(" status : >= 500 ") == parse("status:>=500")


def test_terms_side_by_side_are_all_required() -> None:
    assert parse("a b AND c") == And((word("a"), word("b"), word("c")))


def test_and_binds_tighter_than_or() -> None:
    assert parse("a b OR c d") == Or((And((word("a"), word("b"))), And((word("c"), word("d")))))


def test_parentheses_group() -> None:
    assert parse("a (b OR c)") == And((word("a"), Or((word("b"), word("c")))))


@pytest.mark.parametrize("text", ["NOT a", "not a", "-a", "- a", "Not(a)", "-(a)"])
def test_negations(text: str) -> None:
    assert parse(text) == Not(word("a"))


def test_a_double_negation_stays_one() -> None:
    assert parse("--a") == Not(Not(word("a")))


@pytest.mark.parametrize("text", ["a and b or c", "a AND b OR c", "a And b oR c"])
def test_the_words_between_clauses_are_known_in_any_case(text: str) -> None:
    assert parse(text) == Or((And((word("a"), word("b"))), word("c")))


def test_words_in_quotes_or_after_a_colon_are_values() -> None:
    assert parse('"or"') == Bare("or", quoted=True)
    assert parse("level:not") == equal("level", "not")


def test_a_dash_inside_a_word_belongs_to_it() -> None:
    assert parse("region:eu-west-1 a-b") == And((equal("region", "eu-west-1"), word("a-b")))


def test_words_may_contain_dots_stars_and_quotes() -> None:
    assert parse('http.path:/a.b* it"s') == And((equal("http.path", "/a.b*"), word('it"s')))


def test_a_backslash_in_quotes_takes_the_next_character_as_it_is() -> None:
    assert parse(r'm:"a \"b\" \\ \n"') == Compare("m", "=", 'a "b" \\ n', quoted=True)


def test_values_that_begin_with_a_dash_or_contain_colons_are_quoted() -> None:
    assert parse('temp:>"-5"') == Compare("temp", ">", "-5", quoted=True)
    assert parse('ts:>="2026-03-25T10:00:00Z"') == Compare("ts", ">=", "2026-03-25T10:00:00Z", quoted=True)


def test_has_names_a_field() -> None:
    assert parse("has:level -has:user.id") == And((Has("level"), Not(Has("user.id"))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "q must not be empty"),
        (" \t ", "q must not be empty"),
        ("a:b:c", "unexpected ':'"),
        ("a:-5", "expected a value in query, found '-'"),
        ("a:", "found the end"),
        (":a", "found ':'"),
        ("a:>", "found the end"),
        ("a>5", "found '>'"),
        ("(a", r"missing \)"),
        ("a)", r"unexpected '\)'"),
        ("()", r"found '\)'"),
        ("OR a", "unexpected 'OR'"),
        ("a OR", "found the end"),
        ("a AND", "found the end"),
        ("a AND OR b", "unexpected 'OR'"),
        ("NOT", "found the end"),
        ('"a', "unterminated"),
        ('"a\\"', "unterminated"),
        ('"a\\', "unterminated"),
        ('"a":b', "field name must not be quoted"),
        ('has:"a"', "has: requires a field name"),
        ("has:", "has: requires a field name"),
        ("has:>a", "has: requires a field name"),
    ],
)
def test_what_does_not_parse_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadQuery, match=message):
        parse(text)


def test_an_empty_query_is_called_what_its_sender_calls_it() -> None:
    with pytest.raises(BadQuery, match="filter must not be empty"):
        parse(" ", "filter")


@pytest.mark.parametrize("text", ["(" * 5000 + "a" + ")" * 5000, "-" * 5000 + "a", "NOT (" * (MAX_DEPTH + 1)])
def test_a_query_cannot_be_nested_without_end(text: str) -> None:
    with pytest.raises(BadQuery, match="nested"):
        parse(text)


def test_depth_is_counted_from_the_top_only() -> None:
    parse(" ".join(["(a)"] * (MAX_DEPTH + 1)))


def test_a_query_cannot_have_clauses_without_end() -> None:
    parse(" ".join(["a"] * MAX_CLAUSES))
    with pytest.raises(BadQuery, match="clauses"):
        parse(" ".join(["a"] * (MAX_CLAUSES + 1)))


def render(node: Node) -> str:
    if isinstance(node, And | Or):
        return (" OR " if isinstance(node, Or) else " ").join(f"({render(child)})" for child in node.children)
    if isinstance(node, Not):
        return f"-({render(node.child)})"
    if isinstance(node, Has):
        return f"has:{node.field}"
    value = '"' + node.value.replace("\\", "\\\\").replace('"', '\\"') + '"' if node.quoted else node.value
    return value if isinstance(node, Bare) else f"{node.field}:{node.op}{value}"


RESERVED = {"AND", "OR", "NOT"}
words = st.from_regex(r'[^\s():<>="-][^\s():<>=]{0,5}', fullmatch=True).filter(
    lambda text: text.upper() not in RESERVED
)
names = words.filter(lambda text: text != "has")
values = st.one_of(st.tuples(words, st.just(False)), st.tuples(st.text(max_size=6), st.just(True)))
leaves: st.SearchStrategy[Node] = st.one_of(
    st.builds(Has, words),
    values.map(lambda value: Bare(*value)),
    st.builds(
        lambda field, op, value: Compare(field, op, *value), names, st.sampled_from(["=", ">", ">=", "<", "<="]), values
    ),
)


def composed(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, min_size=2, max_size=4).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, children))


@PATIENT
@given(st.recursive(leaves, composed, max_leaves=12))
def test_what_is_printed_parses_to_the_same_tree(node: Node) -> None:
    assert parse(render(node)) == node


@PATIENT
@given(st.text(alphabet='ab:()=<>-" \\*ORANDNT\t', max_size=30))
def test_any_text_parses_or_is_refused_as_a_query(text: str) -> None:
    try:
        parse(text)
    except BadQuery:
        pass
