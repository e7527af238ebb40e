"""The server held against what the OpenAPI document says of collections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import BaseSchema, Case, GenerationMode
from support.collections_client import CollectionsClient
from support.collections_in_process import MakeStand, opened
from support.openapi_fuzz import fuzz, strict_document
from support.server_process import ServerProcess

from strandline.collections.errors import Code, CollectionError
from strandline.protocols.collections.errors import PROBLEMS, collection_refused
from strandline.protocols.collections.openapi import BATCH, CONFIG, LIST, LIVE, PULL, PUSH
from strandline.server.openapi import document, is_described
from strandline.server.openapi_routes import DOCUMENT_PATH

EXAMPLES = 12
OPERATIONS = [
    ("POST", PUSH), ("GET", PULL), ("GET", LIVE), ("GET", LIST), ("GET", BATCH), ("GET", CONFIG),
    ("POST", "/v1/team" + PUSH),
    ("GET", "/v1/team" + PULL),
]  # fmt: skip
PATHS = {
    PUSH: ["open/a", "open/b", "small/a", "told/a", "signed/a", "open/a b", "nothing"],
    PULL: ["open/a", "open/b", "signed/a", "nothing"],
    # Where a response would stay open, the test would wait for its end.
    LIVE: ["signed/a", "nothing", "open/a b"],
    LIST: ["open", "signed", "nothing"],
    "/v1/team" + PUSH: ["chat/a"],
    "/v1/team" + PULL: ["chat/a"],
}


@pytest.mark.parametrize("code", get_args(Code))
def test_every_code_of_the_domain_has_a_described_status(code: Code) -> None:
    refused = collection_refused(CollectionError(code, "why"))
    assert refused.answer.error
    assert refused.status in {problem.status for problem in PROBLEMS.values()}


def test_every_route_is_described_and_every_description_has_its_route(stand: MakeStand) -> None:
    server = stand(opened(), namespaces={"team": (opened(),)}, cors=("*",))
    routes, described = server.face.routes(), server.face.described
    found = {(route.method, route.path) for route in routes if is_described(route, [described])}
    assert found == set(described.operations)
    # A namespace is in two places, of which one is told.
    assert {path for _, path in {(route.method, route.path) for route in routes} - found} == {
        "/team" + path for path in (PUSH, PULL, LIVE, LIST, BATCH)
    }


def test_operations_have_ids_of_their_own_and_all_errors_are_told(stand: MakeStand) -> None:
    server = stand(opened(), namespaces={"team": (opened(),)}, cors=("*",))
    described = document(server.face.routes(), [server.face.described])
    operations = [operation for methods in described["paths"].values() for operation in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    codes = {
        code
        for name in described["components"]["responses"]
        if name.startswith("collections.")
        for code in name.partition(".")[2].split("-")
    }
    assert codes == set(PROBLEMS) - {"method_not_allowed"}


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.fixture(scope="module")
def schema(served: ServerProcess) -> BaseSchema:
    with CollectionsClient(served.url) as client:
        for path in ("open/a", "open/b", "told/a"):
            for n in range(3):
                client.push(path, {"n": n})
        return schemathesis.openapi.from_dict(strict_document(client.http.get(DOCUMENT_PATH).json()))


def tame(case: Case, data: st.DataObject, path: str) -> None:
    """Point the request at something that is there."""
    if "path" in case.path_parameters:
        case.path_parameters["path"] = data.draw(st.sampled_from(PATHS[path]))
    case.headers.pop("Content-Encoding", None)
    if path == BATCH and data.draw(st.booleans()):
        query: dict[str, Any] = {"collections": "open,signed,nothing"}
        query["params"] = json.dumps({"open": [{"id": "a"}, {"id": "b"}]})
        query["appendParams"] = json.dumps({"open": [{"last": 1}, {}], "signed": [{"last": 1}]})
        case.query = query


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        (method, path, mode)
        for method, path in OPERATIONS
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        # There is nothing that can be wrong with a request for the configuration.
        if path != CONFIG or mode is GenerationMode.POSITIVE
    ],
)
def test_requests_are_answered_as_the_document_says(
    served: ServerProcess,
    schema: BaseSchema,
    session: requests.Session,
    method: str,
    path: str,
    mode: GenerationMode,
) -> None:
    statuses = fuzz(
        schema[path][method], mode, EXAMPLES, lambda case, data: tame(case, data, path), served.url, session
    )
    assert statuses
    if mode is GenerationMode.POSITIVE and path in (BATCH, CONFIG, PULL):
        assert 200 in statuses
