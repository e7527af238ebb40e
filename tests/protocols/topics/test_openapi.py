"""The OpenAPI document, and the server held against it by schemathesis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import BaseSchema, Case, GenerationMode
from support.openapi_fuzz import CHECKS, fuzz, strict_document
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client

from strandline.engine import Engine
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import PROBLEMS
from strandline.protocols.topics.openapi import TOPICS as DESCRIBED
from strandline.protocols.topics.routes import TopicsProtocol
from strandline.protocols.topics.settings import TopicsSettings
from strandline.server.audit_routes import AuditRoutes
from strandline.server.backup_routes import BackupRoutes
from strandline.server.client_routes import ClientRoutes
from strandline.server.clients import Clients
from strandline.server.gate import Status
from strandline.server.key_routes import KeyRoutes
from strandline.server.openapi import document, openapi_route
from strandline.server.openapi_routes import DOCUMENT_PATH, SERVER
from strandline.server.pipeline.lake_marks import LakeMarks
from strandline.server.pipeline.routes import PipelineRoutes
from strandline.server.pipeline.supervisor import PipelineSupervisor
from strandline.server.probes import Probes
from strandline.server.settings import Settings
from strandline.service.access import Keys
from strandline.service.api_keys import ApiKeys
from strandline.service.http import Reply, Route
from strandline.service.kernel import Kernel
from strandline.service.unread import UnreadBytes

OPERATIONS = {**DESCRIBED.operations, **SERVER.operations}
WEBSOCKET_PATH = "/v0/ws"

#: Without an API key, a server adds none.
SECRET = "fuzz-secret"

#: Requests that are made up for each operation; with a topic in the path, for each of the topics below.
EXAMPLES = 8
EXAMPLES_PER_TOPIC = 3

#: What the fuzzed requests are about: most of these exist, of every kind.
TOPICS = ["events", "capped", "jobs", "dead", "copies", "absent", "text"]
#: On these, a stream is refused; on the others it would be open for good.
NO_STREAM = ["events", "absent"]
WATCHED = ["events", "capped", "e*", "absent"]
#: Most topics are no queue, and then there is only one answer.
MOSTLY_QUEUES = ["jobs", "jobs", "dead", "absent"]


def all_routes(path: Path) -> list[Route]:
    async def make() -> list[Route]:
        with Engine.open(path / "data", background=False) as engine:
            context = Context(Kernel.for_tests(engine), TopicsSettings())
            keeper = PipelineSupervisor(Settings(), None, engine)
            keys = ApiKeys(Keys(), engine.now, lambda id: None)
            return [
                *TopicsProtocol(context).routes(),
                *KeyRoutes(keys, context.hub).routes(),
                *AuditRoutes(engine, context.workers).routes(),
                *BackupRoutes(engine, Settings(), context.workers, engine.now).routes(),
                *ClientRoutes(Clients(tuple, UnreadBytes()), keys, engine.now).routes(),
                *PipelineRoutes(keeper, LakeMarks(context.engine, keeper.lake, 0)).routes(),
            ]

    probes = Probes(Status(), lambda: 0, lambda as_json: Reply(b"")).routes()
    routes = [*probes, *asyncio.run(make())]
    return [*routes, openapi_route(routes)]


def test_every_route_is_described_and_every_description_has_its_route(tmp_path: Path) -> None:
    routes = [(route.method, route.path) for route in all_routes(tmp_path)]
    assert len(set(routes)) == len(routes)
    assert set(routes) == set(OPERATIONS)


def test_the_document_has_every_route_with_its_parameters_and_the_websocket(tmp_path: Path) -> None:
    routes = all_routes(tmp_path)
    described = document(routes)
    found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert found == {*OPERATIONS, ("GET", WEBSOCKET_PATH)}
    for route in routes:
        operation = described["paths"][route.path][route.method.lower()]
        in_path = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
        assert in_path == {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
        assert ("requestBody" in operation) == (route.body != "none")
        assert ("text/event-stream" in operation["responses"].get("200", {}).get("content", {})) == route.stream


def test_operations_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    described = document(all_routes(tmp_path))
    ids = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def test_every_error_is_described_at_some_route(tmp_path: Path) -> None:
    described = document(all_routes(tmp_path))
    codes = {code for name in described["components"]["responses"] for code in name.partition(".")[2].split("-")}
    # The one that belongs to a path rather than to one of its methods.
    assert codes == {*PROBLEMS, *SERVER.problems} - {"method_not_allowed"}


# --- over HTTP -----------------------------------------------------------------------------------------------------


def test_the_document_is_served_to_everybody(start_server: StartServer) -> None:
    server = start_server(keys="secret:read", probe_auth=True)
    stranger = server.client("")
    response = stranger.request("GET", DOCUMENT_PATH)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json()["openapi"].startswith("3.1")
    assert response.content == stranger.request("GET", DOCUMENT_PATH).content
    stranger.refused("GET", "/v0/topics", status=401)


def test_another_method_is_told_which_ones_there_are(client: Client, topic: str) -> None:
    response = client.request("PATCH", f"/v0/topics/{topic}")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, HEAD, POST, PUT")
    assert client.request("POST", DOCUMENT_PATH).headers["allow"] == "GET, HEAD"


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of its own, since nobody knows what will be left of its topics. The fast lane hands on to the other."""
    process = ServerProcess(tmp_path_factory.mktemp("fuzzed") / "data", keys=SECRET)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(scope="module")
def schema(fuzzed: ServerProcess) -> BaseSchema:
    described = fuzzed.client().call("GET", DOCUMENT_PATH)
    return schemathesis.openapi.from_dict(strict_document(described))


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.headers["authorization"] = f"Bearer {SECRET}"
        yield session


def furnish(client: Client) -> None:
    """Something of everything, so that requests have something to be about."""
    for name in TOPICS[:-1]:
        client.drop(name)
    client.put("events")
    client.write("events", [{"data": 1, "tag": "a", "node": "n", "meta": {"m": 1}}, {"data": [2]}])
    client.put("capped", cap_records=2)
    client.write("capped", [1, 2, 3])
    client.queue("jobs", [{"data": 1, "tag": "a"}, {"data": 2, "priority": 5}], dead_letter="dead", max_deliveries=1)
    client.put("dead")
    client.write("dead", [{"data": 1, "meta": {"$dead_letter_from": "jobs"}}])
    client.call("PUT", "/v0/routers/r", {"source": "events", "dest": "copies"}, status=201)
    client.call("PUT", "/v0/topics/events/consumers/c", {"seq": 1})
    client.call("POST", "/v0/topics/events/groups/g", {"node": "n"})
    client.call("POST", "/v0/topics/events/groups/g", {"node": "n", "leave": True})
    client.claim("jobs")
    # A stream that is no topic, which is none of theirs to drop either.
    client.http.put("/v1/stream/text", headers={"content-type": "text/plain"})


def tame(case: Case, data: st.DataObject, topic: str) -> None:
    """Point the request at something that is there, and let nothing wait."""
    if "topic" in case.path_parameters:
        case.path_parameters["topic"] = topic
    if "group" in case.path_parameters:
        case.path_parameters["group"] = data.draw(st.sampled_from(["g", "h"]))
    if "consumer" in case.path_parameters:
        case.path_parameters["consumer"] = data.draw(st.sampled_from(["c", "d"]))
    if "router" in case.path_parameters:
        case.path_parameters["router"] = data.draw(st.sampled_from(["r", "s"]))
    # The bodies are not compressed, whatever that header would say.
    case.headers.pop("Content-Encoding", None)
    if isinstance(case.body, dict):
        for name in ("wait_ms", "claim_jitter_ms"):
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], 2)
        # No schema can say that there must be as many as there are seqs, or what a cursor looks like.
        if data.draw(st.booleans()):
            case.body.pop("lease_ids", None)
            case.body.pop("cursor", None)
        if isinstance(case.body.get("topics"), dict):
            case.body["topics"] = dict(zip(WATCHED, case.body["topics"].values(), strict=False))


STREAMS = [key for key, operation in OPERATIONS.items() if operation.is_event_stream]
#: What can be got wrong: everything that has a parameter or a body.
FALLIBLE = [key for key, operation in OPERATIONS.items() if operation.parameters or operation.body is not None]


class Fuzz:
    """One operation, with requests that schemathesis makes up."""

    def __init__(
        self, server: ServerProcess, schema: BaseSchema, session: requests.Session, method: str, path: str
    ) -> None:
        client = server.client()
        furnish(client)
        # Of an API key, there is one to change.
        self._id: str = client.call("POST", "/v0/keys", {"scopes": ["read"]}, status=201)["key"]["id"]
        if path == "/v0/clients/{id}":
            # The connection of this client, which stays open until it is ended.
            self._id = str(client.call("GET", "/v0/clients?kind=request")["clients"][0]["id"])
        else:
            client.close()
        self._server = server
        self._session = session
        self._operation = schema[path][method]
        self.is_stream = (method, path) in STREAMS
        is_about_jobs = "queues" in self._operation.definition.raw["tags"]
        self._topics = NO_STREAM if self.is_stream else MOSTLY_QUEUES if is_about_jobs else TOPICS
        self._has_topic = "{topic}" in path

    def run(self, mode: GenerationMode) -> set[int]:
        """The statuses that were answered, each as the document says."""
        if not self._has_topic:
            return self._run(mode, "", EXAMPLES)
        return set().union(*(self._run(mode, topic, EXAMPLES_PER_TOPIC) for topic in self._topics))

    def _run(self, mode: GenerationMode, topic: str, examples: int) -> set[int]:
        def tamed(case: Case, data: st.DataObject) -> None:
            tame(case, data, topic)
            if "id" in case.path_parameters:
                case.path_parameters["id"] = self._id

        statuses = fuzz(self._operation, mode, examples, tamed, self._server.url, self._session)
        assert self._server.running
        return statuses


@pytest.mark.parametrize(("method", "path"), [*OPERATIONS, ("GET", WEBSOCKET_PATH)])
def test_valid_requests_are_answered_as_the_document_says(
    fuzzed: ServerProcess, schema: BaseSchema, session: requests.Session, method: str, path: str
) -> None:
    operation = Fuzz(fuzzed, schema, session, method, path)
    statuses = operation.run(GenerationMode.POSITIVE)
    # Otherwise nothing was tried but refusals. The pipeline is turned off here.
    assert statuses & {200, 201, 204} or operation.is_stream or path in (WEBSOCKET_PATH, "/pipeline/run")


def test_metrics_are_as_the_document_says_in_both_forms(fuzzed: ServerProcess, schema: BaseSchema) -> None:
    client = fuzzed.client()
    furnish(client)
    case = schema["/v0/metrics"]["GET"].Case()
    for accept in ("text/plain", "application/json"):
        response = client.request("GET", "/v0/metrics", headers={"accept": accept})
        assert response.headers["content-type"].startswith(accept)
        case.validate_response(response, checks=CHECKS)


@pytest.mark.parametrize(("method", "path"), FALLIBLE)
def test_requests_that_make_no_sense_are_answered_as_the_document_says(
    fuzzed: ServerProcess, schema: BaseSchema, session: requests.Session, method: str, path: str
) -> None:
    Fuzz(fuzzed, schema, session, method, path).run(GenerationMode.NEGATIVE)
