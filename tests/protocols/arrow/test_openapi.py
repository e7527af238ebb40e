"""What the OpenAPI document says of the Arrow face, and the server held against it by schemathesis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import BaseSchema, Case, GenerationMode
from support.arrow_client import ARROW, ArrowClient, encode, table
from support.openapi_fuzz import CHECKS, TIMEOUT_SECONDS, fuzz, strict_document
from support.server_process import ServerProcess
from support.streams_client import JSON, StreamsClient

from strandline.protocols.arrow.errors import PROBLEMS
from strandline.protocols.arrow.openapi import ARROW as DESCRIBED
from strandline.protocols.arrow.routes import LOG, LOGS, PROGRESS, RECORDS, STAGED
from strandline.protocols.arrow.staged import SELECTION, name_hash
from strandline.server.openapi_routes import DOCUMENT_PATH

#: Requests that are made up for each operation and each of the logs that it is about.
EXAMPLES = 4
LOGS_ASKED = ["fuzzed-log", "fuzzed-text", "fuzzed-shaped", "fuzzed-absent"]


@schemathesis.serializer(ARROW)
def as_it_is(context: object, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class Bed:
    def __init__(self, server: ServerProcess, document: dict[str, Any], session: requests.Session) -> None:
        self.server = server
        self.document = document
        self.schema: BaseSchema = schemathesis.openapi.from_dict(strict_document(document))
        self.session = session


@pytest.fixture(scope="module")
def bed(server: ServerProcess) -> Iterator[Bed]:
    with requests.Session() as session:
        session.trust_env = False
        furnish(server.url)
        yield Bed(server, session.get(server.url + DOCUMENT_PATH).json(), session)


def furnish(url: str) -> None:
    streams, arrow = StreamsClient(url), ArrowClient(url)
    arrow.append("fuzzed-log", table(1, 2, key=["a", None]), create="true", status=201, writer="w", progress={"a": 1})
    streams.create("fuzzed-text", "text/plain", "text")
    streams.create("fuzzed-shaped", JSON)
    assert streams.request("POST", "fuzzed-shaped/_schema", {"schema": {}}, headers={"content-type": JSON}).is_success
    streams.create("fuzzed-fork", None, stream_forked_from="/v1/stream/fuzzed-text")
    streams.close()
    arrow.close()


def test_every_answer_and_every_error_is_in_the_document(bed: Bed) -> None:
    paths = {path: methods for path, methods in bed.document["paths"].items() if path.startswith("/arrow")}
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == set(DESCRIBED.operations)
    responses = bed.document["components"]["responses"]
    codes = {code for name in responses if name.startswith("arrow.") for code in name.removeprefix("arrow.").split("-")}
    assert codes == set(PROBLEMS) - {"method_not_allowed"}
    for method, path in found:
        parameters = paths[path][method.lower()]["parameters"]
        in_path = {parameter["name"] for parameter in parameters if parameter["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))


#: The part of the id of staged rows that names the log "fuzzed-log".
NAME_HASH = name_hash("fuzzed-log")


def about(name: str, **more: Any) -> dict[str, Any]:
    return {"path_parameters": {"name": name}, **more}


SENSIBLE = [
    ("GET", LOGS, 200, {"query": {"limit": 1, "internal": "true"}}),
    ("GET", LOGS, 200, {"query": {"prefix": "l", "after": "a"}}),
    ("GET", LOG, 200, about("fuzzed-log", query={"writer": "w"})),
    ("GET", LOG, 200, about("fuzzed-log", query={"writer": "none"})),
    ("GET", LOG, 200, about("fuzzed-shaped")),
    ("GET", LOG, 200, about("fuzzed-fork")),
    ("GET", LOG, 409, about("fuzzed-log", query={"epoch": 999})),
    ("GET", RECORDS, 200, about("fuzzed-log", query={"after": 1, "compression": "zstd", "key": "a"})),
    ("GET", RECORDS, 200, about("fuzzed-fork", query={"since": "2020-01-01T00:00:00Z", "until": 10**12})),
    ("GET", RECORDS, 404, about("fuzzed-absent")),
    ("POST", RECORDS, 201, about("fuzzed-new", body=encode(table(1)), media_type=ARROW, query={"create": "true"})),
    ("POST", RECORDS, 200, about("fuzzed-text", body=encode(table(b"x")), media_type=ARROW)),
    ("POST", RECORDS, 409, about("fuzzed-shaped", body=encode(table(1)), media_type=ARROW)),
    ("POST", RECORDS, 409, about("fuzzed-log", body=encode(table(1)), media_type=ARROW, query={"writer": "w"},
                                 headers={"Strandline-Progress": '{"a":2}'})),
    ("POST", RECORDS, 400, about("fuzzed-log", body=b"no arrow", media_type=ARROW)),
    ("POST", STAGED, 201, about("fuzzed-log", body=encode(table(1)), media_type=ARROW)),
    ("POST", RECORDS, 404, about("fuzzed-log", body={"parts": ["0" * 66], "rows": [[0, 0, 1]]}, media_type=SELECTION)),
    ("DELETE", STAGED, 200, about("fuzzed-log", query={"ids": f"{'0' * 32}-{NAME_HASH}-{'0' * 16}"})),
    ("DELETE", PROGRESS, 200, about("fuzzed-log", query={"writer": "none"})),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "status", "parts"), SENSIBLE)
def test_a_request_that_makes_sense_is_answered_as_the_document_says(
    bed: Bed, method: str, path: str, status: int, parts: dict[str, Any]
) -> None:
    case = bed.schema[path][method].Case(**parts)
    response = case.call_and_validate(
        base_url=bed.server.url, session=bed.session, checks=CHECKS, timeout=TIMEOUT_SECONDS
    )
    assert response.status_code == status


def test_every_answer_that_is_no_refusal_was_asked_for() -> None:
    asked = {(method, path, status) for method, path, status, _ in SENSIBLE}
    described = {
        (method, path, answer.status)
        for (method, path), operation in DESCRIBED.operations.items()
        for answer in operation.answers
    }
    assert described <= asked


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("method", "path"), list(DESCRIBED.operations))
def test_a_request_that_is_made_up_is_answered_as_the_document_says(
    bed: Bed, method: str, path: str, mode: GenerationMode
) -> None:
    for name in LOGS_ASKED if "{name}" in path else [""]:

        def tame(case: Case, data: st.DataObject, name: str = name) -> None:
            if "name" in case.path_parameters:
                case.path_parameters["name"] = name
            case.headers.pop("Content-Encoding", None)

        fuzz(bed.schema[path][method], mode, EXAMPLES, tame, bed.server.url, bed.session)
