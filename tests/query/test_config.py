from __future__ import annotations

from strandline.query.config import Binding, Field, SearchConfig


def keyword(name: str, **settings: object) -> Field:
    return Field(name, "keyword", (Binding(1, f"/{name}"),), **settings)  # type: ignore[arg-type]


def test_a_name_resolves_to_its_field() -> None:
    order = keyword("orderId")
    config = SearchConfig(fields={"orderId": order}, aliases={"ord": "orderId"})
    assert config.resolve("orderId") is order
    assert config.resolve("ord") is order
    assert config.resolve("order") is None


def test_nothing_resolves_where_nothing_is_configured() -> None:
    assert SearchConfig().resolve("level") is None
    assert SearchConfig().document() == {}


def test_the_binding_of_a_record_is_the_latest_that_is_not_newer() -> None:
    field = Field("f", "keyword", (Binding(2, "/two"), Binding(5, "/five")))
    found = [field.binding(version) for version in (0, 1, 2, 4, 5, 6)]
    assert [binding and binding.version for binding in found] == [None, None, 2, 2, 5, 5]


def test_records_without_a_schema_have_the_binding_of_version_1() -> None:
    field = Field("f", "keyword", (Binding(1, "/one"), Binding(2, "/two")))
    assert field.binding(0) == field.binding(1) == Binding(1, "/one")


def test_keywords_are_normalised_as_declared() -> None:
    assert keyword("k").normalise("ÄB") == "ÄB"
    assert keyword("k", normalizer="identity_v1").normalise("ÄB") == "ÄB"
    assert keyword("k", normalizer="lowercase_v1").normalise("ÄB") == "äb"
