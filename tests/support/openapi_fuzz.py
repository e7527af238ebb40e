"""Holding a server against its OpenAPI document, with requests that schemathesis makes up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TIMEOUT_SECONDS = 20

#: Points a request at something that is there, and lets nothing wait.
Tame = Callable[[Case, st.DataObject], None]


def strict_document(described: dict[str, Any]) -> dict[str, Any]:
    """The document as the server has it, but answers may have no member that it does not mention."""
    schemas = described["components"]["schemas"]
    asked = _reachable(
        [operation.get("requestBody") for methods in described["paths"].values() for operation in methods.values()],
        schemas,
    )
    described["components"]["schemas"] = {
        name: schema if name in asked else _closed(schema) for name, schema in schemas.items()
    }
    return described


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        return {**schema, "additionalProperties": False}
    return schema


def _reachable(value: Any, schemas: dict[str, Any]) -> set[str]:
    """The names of all schemas that something refers to, by way of others too."""
    found: set[str] = set()
    waiting = list(_references(value))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_references(schemas[name]))
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def not_utf_8(described: dict[str, Any], path: str, method: str) -> Iterator[bytes]:
    """Bodies of JSON that would be fine, as far as they go, but for a string that is not valid UTF-8."""
    yield b'"\xc4"'
    schema = described["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["schema"]
    for name in _reachable(schema, described["components"]["schemas"]):
        for field in described["components"]["schemas"][name].get("properties", {}):
            yield b'{"%b":"\xc4"}' % field.encode()


def fuzz(
    operation: Any, mode: GenerationMode, examples: int, tame: Tame, url: str, session: requests.Session
) -> set[int]:
    """The statuses that were answered, each as the document says. The same requests every time."""
    statuses: set[int] = set()

    @seed(1)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        tame(case, data)
        response = case.call_and_validate(base_url=url, session=session, checks=CHECKS, timeout=TIMEOUT_SECONDS)
        statuses.add(response.status_code)

    ask()
    return statuses
