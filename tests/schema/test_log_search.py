from __future__ import annotations

from typing import Any

import pytest

from strandline.query.config_parser import parse_search_config
from strandline.schema.errors import SchemaError
from strandline.schema.log_search import MAX_SEARCH_BYTES, checked_search, log_search, with_search
from strandline.schema.registry import Registry

FIELD: dict[str, Any] = {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/search"}]}


def test_a_log_is_searched_as_its_registry_says() -> None:
    registry = Registry.installed("log", {"type": "object"}, search=parse_search_config({"fields": {"a": FIELD}}))
    search = log_search(registry.stored())
    assert search is not None
    assert (list(search.config.fields), search.versions) == (["a"], [(1, 1)])


@pytest.mark.parametrize(
    "stored",
    [None, Registry.empty("log").stored(), Registry.installed("log", {"properties": {"search": {}}}).stored()],
    ids=["no registry", "no schema", "no search"],
)
def test_a_log_without_a_search_configuration_is_not_searched(stored: bytes | None) -> None:
    assert log_search(stored) is None


def test_a_log_without_a_schema_has_no_versions() -> None:
    search = log_search(with_search(None, "log", checked_search({"fields": {"a": FIELD}})))
    assert search is not None
    assert (list(search.config.fields), search.versions) == (["a"], [])


def test_a_search_configuration_is_replaced_and_removed() -> None:
    config = checked_search({"fields": {"a": FIELD}})
    schema = Registry.installed("log", {"type": "object"})
    assert (
        with_search(schema.stored(), "log", config)
        == Registry.installed("log", {"type": "object"}, search=config).stored()
    )
    assert with_search(with_search(schema.stored(), "log", config), "log", None) == schema.stored()
    assert with_search(with_search(None, "log", config), "log", checked_search(None)) is None
    assert with_search(None, "log", None) is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "search must be an object"),
        ({"fields": {}}, "search.fields must be a non-empty object"),
        ({"fields": {f"f{number}": FIELD for number in range(3_500)}}, "search has more than 10000 objects and arrays"),
        ({"fields": {"a": FIELD}, "profile": "x" * MAX_SEARCH_BYTES}, "search is larger than 131072 bytes"),
    ],
)
def test_a_search_configuration_in_a_request_is_checked(document: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        checked_search(document)
