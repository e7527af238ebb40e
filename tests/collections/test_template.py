from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.collections.paths import BadStoragePath, StoragePath, key_is_safe, segments_of, values_fit

words = st.from_regex(r"\A[a-zA-Z0-9_-]{1,8}\Z")
values = st.from_regex(r"\A[a-zA-Z0-9._:@-]{1,12}\Z")
#: Each segment with whether it is a placeholder; no name occurs twice.
segments = st.lists(
    st.tuples(words.filter(str.isidentifier), st.booleans()), min_size=1, max_size=6, unique_by=lambda s: s[0]
)


@given(segments, st.data())
def test_a_key_leads_back_to_its_parameters(parts: list[tuple[str, bool]], data: st.DataObject) -> None:
    template = StoragePath("/".join(f"{{{name}}}" if placeholder else name for name, placeholder in parts))
    params = {name: data.draw(values) for name in template.names}
    key = template.key(params)
    assert template.match(key.split("/")) == params
    assert template.match(segments_of(key)) == params
    assert key.startswith(template.prefix(params))
    assert key.count("/") == template.length - 1
    assert template.match([*key.split("/"), "more"]) is None


@given(segments)
def test_a_template_knows_its_placeholders(parts: list[tuple[str, bool]]) -> None:
    template = StoragePath("/".join(f"{{{name}}}" if placeholder else name for name, placeholder in parts))
    assert template.names == tuple(name for name, placeholder in parts if placeholder)
    assert template.ends_in_placeholder == parts[-1][1]


def test_a_placeholder_stands_for_one_segment_that_is_not_empty() -> None:
    template = StoragePath("events/{date}")
    assert template.match(["events", "2024-01-15"]) == {"date": "2024-01-15"}
    assert template.match(["events", ""]) is None
    assert template.match(["events"]) is None
    assert template.match(["events", "a", "b"]) is None
    assert template.match(["other", "a"]) is None


def test_documents_are_listed_one_segment_above_them() -> None:
    template = StoragePath("rooms/{room}/{day}")
    assert template.match_prefix(["rooms", "r1"]) == {"room": "r1", "day": "-"}
    assert template.match_prefix(["rooms", "r1", "d1"]) is None
    assert template.prefix({"room": "r1"}) == "rooms/r1/"
    assert StoragePath("{room}").prefix({}) == ""


def test_segments_are_decoded_one_by_one() -> None:
    assert segments_of("events/a%2Fb/%41%2541") == ["events", "a/b", "A%41"]


@pytest.mark.parametrize("value", ["a", "2024-01-15", "me@example.org", "a:b", "..", "."])
def test_what_a_value_may_be(value: str) -> None:
    assert values_fit({"name": value})


@pytest.mark.parametrize("value", ["", "a/b", "a b", "a\n", "\n", "é", "a%41", "\ud800", "a\x00", "{a}"])
def test_what_a_value_may_not_be(value: str) -> None:
    assert not values_fit({"fine": "a", "name": value})


@pytest.mark.parametrize("key", ["a/../b", "..", "a//b", "a\x1fb", "a/b..c"])
def test_keys_that_are_not_safe(key: str) -> None:
    assert not key_is_safe(key)
    assert key_is_safe("a/b.c/d:e@f")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/events", "must not start with /"),
        ("", "must not be empty"),
        ("events/", "empty segment"),
        ("a//b", "empty segment"),
        ("a/../b", r"\.\."),
        ("a\x01", "control character"),
        ("{a}/{a}", "twice"),
        ("a-{b}", "whole segment"),
        ("{a b}", "whole segment"),
        ("{}", "whole segment"),
        ("{a", "whole segment"),
        ("a}", "whole segment"),
    ],
)
def test_a_storage_path_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadStoragePath, match=why):
        StoragePath(text)
