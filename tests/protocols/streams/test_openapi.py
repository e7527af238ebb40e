"""What the OpenAPI document says of the streams protocol. The server is held against it in test_schemathesis.py."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from support.streams_client import StreamsClient

from strandline.engine import Engine
from strandline.protocols.streams import routes as face_module
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import PROBLEMS
from strandline.protocols.streams.openapi import STREAMS
from strandline.protocols.streams.routes import StreamsProtocol
from strandline.protocols.streams.settings import StreamsSettings
from strandline.schema.profiles import _KINDS, ProfileKind, ProfileUpdate
from strandline.server.openapi import DESCRIBED, document, is_described
from strandline.server.openapi_routes import DOCUMENT_PATH
from strandline.service.http import Route
from strandline.service.kernel import Kernel

FACE = Path(face_module.__file__).parent
#: Refusals of the server itself that no route of this protocol gives, and the one that belongs to a whole path.
ELSEWHERE = {"method_not_allowed"}


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Route]:
    async def make() -> list[Route]:
        with Engine.open(tmp_path_factory.mktemp("routes") / "data", background=False) as engine:
            face = StreamsProtocol(StreamsContext(Kernel.for_tests(engine), StreamsSettings()))
            made = face.routes()
            face.drain()
            return made

    return asyncio.run(make())


@pytest.fixture(scope="module")
def described(routes: list[Route]) -> dict[str, Any]:
    return document(routes)


def operations(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in described["paths"].values():
        yield from methods.values()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_route_is_described(routes: list[Route]) -> None:
    assert [(route.method, route.path) for route in routes if not is_described(route)] == []


def test_every_description_has_its_route(routes: list[Route]) -> None:
    assert set(STREAMS.operations) <= {(route.method, route.path) for route in routes}
    assert {route.path for route in routes} >= STREAMS.nothing


def test_nothing_is_described_twice() -> None:
    keys = [key for face in DESCRIBED for key in face.operations]
    assert len(set(keys)) == len(keys)
    groups = [group for face in DESCRIBED for group in face.groups]
    assert len(set(groups)) == len(groups)


def test_an_operation_has_the_parameters_of_its_path_and_a_body_where_the_route_takes_one(
    routes: list[Route], described: dict[str, Any]
) -> None:
    for route in routes:
        if route.path in STREAMS.nothing:
            assert route.path not in described["paths"]
            continue
        operation = described["paths"][route.path][route.method.lower()]
        in_path = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", route.path))
        assert ("requestBody" in operation) == (route.body != "none")


def test_operations_are_told_apart_by_their_ids(described: dict[str, Any]) -> None:
    ids = [operation["operationId"] for operation in operations(described)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-z0-9_]+", each) for each in ids)


def test_every_operation_is_in_a_group_that_is_described(described: dict[str, Any]) -> None:
    groups = {tag["name"] for tag in described["tags"] if tag["description"]}
    assert {tag for operation in operations(described) for tag in operation["tags"]} <= groups
    assert {operation.group for operation in STREAMS.operations.values()} == set(STREAMS.groups)


def test_all_references_lead_somewhere_and_every_struct_has_a_name_of_its_own(described: dict[str, Any]) -> None:
    for reference in set(references(described)):
        _, kind, name = reference.removeprefix("#/").split("/")
        assert name in described["components"][kind], reference
    # msgspec gives structs of the same name the names of their modules.
    assert all(re.fullmatch("[A-Za-z]+", name) for name in described["components"]["schemas"])


def test_every_error_is_described_at_some_route(described: dict[str, Any]) -> None:
    text = str(list(operations(described))) + str(described["components"]["responses"])
    assert {code for code in PROBLEMS if f"`{code}`" in text} == set(PROBLEMS) - ELSEWHERE


def test_a_profile_is_described_for_every_kind() -> None:
    declared = get_args(get_type_hints(ProfileUpdate)["profile"])
    assert {struct.__struct_config__.tag for struct in declared} == set(_KINDS) == set(get_args(ProfileKind))


def test_a_server_serves_both_protocols_in_one_document(streams: StreamsClient) -> None:
    response = streams.request("GET", DOCUMENT_PATH)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    paths = response.json()["paths"]
    assert {"/v0/topics/{topic}", "/v1/stream/{name}", "/v1/stream/__ds/jwks.json", "/openapi.json"} <= set(paths)


def test_browsers_may_ask_without_a_key(streams: StreamsClient) -> None:
    operation = streams.request("GET", DOCUMENT_PATH).json()["paths"]["/v1/stream/{name}"]["options"]
    assert operation["security"] == []
