"""What the OpenAPI document says of the console, and the server held against it by schemathesis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import BaseSchema, Case, GenerationMode
from support.openapi_fuzz import CHECKS, TIMEOUT_SECONDS, fuzz, strict_document
from support.server_process import ServerProcess
from support.streams_client import StreamsClient
from support.topics_client import Client

from strandline.protocols.console import routes
from strandline.protocols.console.errors import PROBLEMS
from strandline.protocols.console.openapi import CONSOLE
from strandline.server.openapi_routes import DOCUMENT_PATH

#: Requests that are made up for each operation and each of the logs that it is about.
EXAMPLES = 3
LOGS_ASKED = ["fuzzed-topic", "fuzzed-jobs", "fuzzed-text", "fuzzed-absent"]
#: These would be open for good; and of a file there is nothing to make up.
NOT_FUZZED = (routes.LIVE, routes.TAIL, routes.PAGE, routes.ASSET)


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
    streams, topics = StreamsClient(url), Client(url)
    topics.put("fuzzed-topic", cap_records=3)
    topics.write("fuzzed-topic", [{"data": {"a": each}, "tag": f"key-{each}"} for each in range(5)])
    topics.call("PUT", "/v0/topics/fuzzed-topic/consumers/reader", {"seq": 1})
    topics.queue("fuzzed-jobs", [1, 2, 3], dead_letter="fuzzed-dead")
    topics.claim("fuzzed-jobs", max=2)
    topics.nack("fuzzed-jobs", [2], delay_ms=60_000)
    topics.request("PUT", "/v0/routers/fuzzed-router", {"source": "fuzzed-topic", "dest": "fuzzed-copy"})
    # The server is shared: it may be there already.
    assert streams.request("PUT", "fuzzed-text", "text", headers={"content-type": "text/plain"}).status_code in (
        200,
        201,
    )
    streams.close()
    topics.close()


def test_every_answer_and_every_error_is_in_the_document(bed: Bed) -> None:
    paths = {path: methods for path, methods in bed.document["paths"].items() if path.startswith("/console")}
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == set(CONSOLE.operations)
    responses = bed.document["components"]["responses"]
    named = [name.removeprefix("console.") for name in responses if name.startswith("console.")]
    assert {code for name in named for code in name.split("-")} == set(PROBLEMS)
    for method, path in found:
        parameters = paths[path][method.lower()].get("parameters", [])
        in_path = {parameter["name"] for parameter in parameters if parameter["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))


def about(name: str, **query: Any) -> dict[str, Any]:
    return {"path_parameters": {"name": name}, "query": query}


SENSIBLE = [
    (routes.SESSION, 200, {}),
    (routes.OVERVIEW, 200, {}),
    (routes.HISTORY, 200, {"query": {"hours": 24}}),
    (routes.HISTORY, 400, {"query": {"hours": 169}}),
    (routes.LOGS, 200, {"query": {"sort": "records", "search": "fuzzed"}}),
    (routes.PREFIXES, 200, {"query": {"under": "fuzzed"}}),
    (routes.LOG, 200, about("fuzzed-topic")),
    (routes.LOG, 404, about("fuzzed-absent")),
    (routes.RECORDS, 200, about("fuzzed-topic")),
    (routes.RECORDS, 200, about("fuzzed-topic", before=5, limit=1)),
    (routes.RECORDS, 200, about("fuzzed-text", at=0)),
    (routes.MATCHES, 200, about("fuzzed-topic", where=".a > 1 or /x/", bucket_ms=1000)),
    (routes.MATCHES, 400, about("fuzzed-topic", where="/(/")),
    (routes.KEYS, 200, about("fuzzed-topic", prefix="key")),
    (routes.REMOVAL, 200, about("fuzzed-topic", key="key-4")),
    (routes.QUEUES, 200, {}),
    (routes.QUEUE, 200, about("fuzzed-jobs")),
    (routes.QUEUE, 409, about("fuzzed-topic")),
    (routes.ROUTERS, 200, {}),
    (routes.FIELDS, 200, about("fuzzed-topic")),
    (routes.TABLES, 200, {}),
    (routes.TABLE, 404, {"path_parameters": {"table": "nothing"}}),
    (routes.COLLECTIONS, 200, {}),
    (routes.COLLECTION, 404, {"query": {"name": "nothing"}}),
    (routes.DOCUMENT, 404, about("fuzzed-topic")),
    (routes.ASSET, 200, {"path_parameters": {"path": "icon.svg"}}),
    (routes.ASSET, 404, {"path_parameters": {"path": "nothing"}}),
]


@pytest.mark.parametrize(("path", "status", "parts"), SENSIBLE)
def test_a_request_that_makes_sense_is_answered_as_the_document_says(
    bed: Bed, path: str, status: int, parts: dict[str, Any]
) -> None:
    case = bed.schema[path]["GET"].Case(**parts)
    response = case.call_and_validate(
        base_url=bed.server.url, session=bed.session, checks=CHECKS, timeout=TIMEOUT_SECONDS
    )
    assert response.status_code == status


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("method", "path"), [each for each in CONSOLE.operations if each[1] not in NOT_FUZZED])
def test_a_request_that_is_made_up_is_answered_as_the_document_says(
    bed: Bed, method: str, path: str, mode: GenerationMode
) -> None:
    for name in LOGS_ASKED if "{name}" in path else [""]:

        def tame(case: Case, data: st.DataObject, name: str = name) -> None:
            if "name" in case.path_parameters:
                case.path_parameters["name"] = name

        fuzz(bed.schema[path][method], mode, EXAMPLES, tame, bed.server.url, bed.session)
