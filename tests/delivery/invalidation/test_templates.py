from __future__ import annotations

import pytest
from support.invalidation_clients import declare

from strandline.delivery.invalidation.templates import NO_TEMPLATE, Declaration, Template, TemplateField, Templates
from strandline.schema.profiles.touch_settings import TemplateSettings


def names(templates: list[Template]) -> list[str]:
    return [template.declaration.fields[0].name for template in templates]


def test_activating_again_changes_nothing_but_when_it_was_seen() -> None:
    templates = Templates(TemplateSettings())
    (first,) = templates.activate([declare("posts", "a", "b")], None, 0, 3).activated
    (again,) = templates.activate([declare("posts", "b", "a")], 5, 7, 9).activated
    assert again is first
    assert (first.active_from, first.last_seen, first.ttl_ms) == (3, 7, 5)
    assert len(templates) == 1


@pytest.mark.parametrize(
    "declaration",
    [
        declare("posts", "a", encoding="words"),
        declare("posts", "a", "a"),
        declare("posts"),
        declare("posts", "a", "b", "c", "d"),
        declare("", "a"),
        declare("posts", ""),
    ],
)
def test_what_makes_no_sense_is_denied(declaration: Declaration) -> None:
    outcome = Templates(TemplateSettings()).activate([declaration], None, 0, 0)
    assert outcome.activated == []
    assert outcome.denied == [(NO_TEMPLATE, "invalid")]


def test_an_active_template_keeps_its_encodings() -> None:
    templates = Templates(TemplateSettings())
    templates.activate([declare("posts", "a")], None, 0, 0)
    outcome = templates.activate([declare("posts", "a", encoding="bool")], None, 0, 0)
    assert [reason for _, reason in outcome.denied] == ["invalid"]
    assert outcome.denied[0][0] != NO_TEMPLATE


def test_new_templates_are_limited_by_the_minute_and_known_ones_are_not() -> None:
    templates = Templates(TemplateSettings(activation_rate_per_minute=2))
    wanted = [declare("posts", name) for name in "abc"]
    outcome = templates.activate(wanted, None, 0, 0)
    assert len(outcome.activated) == 2
    assert outcome.denied == [(f"{wanted[2].identifier:016x}", "rate_limited")]
    assert len(templates.activate(wanted[:2], None, 1, 0).activated) == 2
    assert templates.activate(wanted[2:], None, 59_999, 0).denied
    assert templates.activate(wanted[2:], None, 60_000, 0).activated


def test_over_a_cap_the_one_that_was_seen_least_recently_goes() -> None:
    templates = Templates(TemplateSettings(max_active_per_entity=2, max_active_per_stream=3))
    for at, name in enumerate("ab"):
        templates.activate([declare("posts", name)], None, at, 0)
    templates.see(declare("posts", "a").identifier, 5)
    assert names(templates.activate([declare("posts", "c")], None, 6, 0).evicted) == ["b"]
    templates.activate([declare("users", "d")], None, 7, 0)
    assert names(templates.activate([declare("users", "e")], None, 8, 0).evicted) == ["a"]
    assert templates.entity_of(declare("posts", "b").identifier) == "posts"
    assert templates.entity_of(declare("posts", "x").identifier) is None
    assert set(templates.of("users") or ()) == {declare("users", name).identifier for name in "de"}


def test_what_nobody_names_is_retired_in_its_time_unless_somebody_waits_on_it() -> None:
    templates = Templates(TemplateSettings(default_inactivity_ttl_ms=100))
    templates.activate([declare("posts", "a"), declare("posts", "b")], None, 0, 0)
    templates.activate([declare("posts", "c")], 1000, 0, 0)
    templates.see(declare("posts", "b").identifier, 50)
    assert templates.retire_inactive(99, []) == []
    assert templates.retire_inactive(100, [declare("posts", "a").identifier]) == []
    assert names(templates.retire_inactive(100, [])) == ["a"]
    assert names(templates.retire_inactive(150, [])) == ["b"]
    assert names(templates.retire_inactive(1000, [])) == ["c"]
    assert templates.of("posts") is None


def test_what_is_written_down_comes_back() -> None:
    templates = Templates(TemplateSettings())
    templates.activate([declare("posts", "b", "a"), declare("users", "c", encoding="bool")], 77, 10, 4)
    stored = templates.stored(1000)
    loaded = Templates(TemplateSettings())
    loaded.load(stored, 900, 500)
    assert loaded.stored(900) == stored
    template = loaded.get(declare("posts", "a", "b").identifier)
    assert template is not None
    assert (template.last_seen, template.ttl_ms, template.active_from) == (110, 77, 0)


def test_arguments_are_in_the_order_of_the_names() -> None:
    template = Template(Declaration("posts", (TemplateField("b", "string"), TemplateField("a", "int64"))), 1, 0, 0)
    assert template.arguments({"a": 1, "b": "x", "c": 5}) == b"1\0x"
    assert template.arguments({"a": None, "b": "x"}) is None
    with pytest.raises(KeyError):
        template.arguments({"a": 1})
