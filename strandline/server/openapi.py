"""The OpenAPI document: what routes, structs and descriptions say, put together once and served as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

import strandline
from strandline.faces.describing import Operation, Parameter
from strandline.faces.topics.answers import ErrorAnswer
from strandline.faces.topics.descriptions import DESCRIPTIONS
from strandline.faces.topics.openapi import OPERATIONS as TOPICS
from strandline.faces.topics.openapi import WEBSOCKET
from strandline.faces.topics.problems import PROBLEMS
from strandline.faces.web import Call, Reply, Route
from strandline.server.answers import Alive, Health, Metrics, Ready, SeriesCount

PATH = "/openapi.json"
WEBSOCKET_PATH = "/v0/ws"

_ABOUT = """An append-only event log server. Write with `POST /v0/topics/{topic}`, read with `POST
/v0/topics/{topic}/diff`, watch with `POST /v0/watch`, or hand out jobs with `POST /v0/topics/{topic}/claim`.

Times are milliseconds since 1970. Unknown members of a body are ignored; an answer may get new ones. A body may be
compressed with gzip, and so is an answer of some size for whoever accepts that."""

_GROUPS = {
    "topics": "Named, append-only sequences of records.",
    "records": "Writing, reading and deleting.",
    "consumers": "Named positions in a topic, kept by the server.",
    "queues": "Topics whose records are jobs: each is given to one worker at a time, until it is done.",
    "routers": "Records that go on into other topics by themselves.",
    "watching": "Being told of records as they come.",
    "server": "How the server is doing.",
}


_HEALTH = Operation(group="server", summary="Whether the process is alive", answer=Health)
_READY = Operation(
    group="server",
    summary="Whether requests are answered",
    description="503 while the journal is replayed, and when the server is about to stop.",
    answer=Ready,
    errors=("not_ready", "shutting_down"),
)

#: The server's own routes.
_SERVER: dict[tuple[str, str], Operation] = {
    ("GET", "/v0/health"): _HEALTH,
    ("GET", "/healthz"): _HEALTH,
    ("GET", "/health"): Operation(group="server", summary="Whether the process is alive", answer=Alive),
    ("GET", "/metrics"): Operation(
        group="server",
        summary="How many series the server's metrics of itself have",
        description="The series are in the stream `__stream_metrics__`.",
        answer=SeriesCount,
    ),
    ("GET", "/v0/ready"): _READY,
    ("GET", "/readyz"): _READY,
    ("GET", "/v0/metrics"): Operation(
        group="server",
        summary="Figures for monitoring",
        answer="The figures as Prometheus text; as JSON for whoever accepts `application/json`.",
        media_type="text/plain",
        as_json=Metrics,
    ),
    ("GET", PATH): Operation(
        group="server", summary="This document", answer="The OpenAPI document.", media_type="application/json"
    ),
}


OPERATIONS: dict[tuple[str, str], Operation] = {**TOPICS, **_SERVER}


def openapi_route(routes: Sequence[Route]) -> Route:
    """The route of the document about these routes and itself. It is no secret: nobody needs a key for it."""

    @cache
    def rendered() -> bytes:
        return msgspec.json.encode(document([*routes, route]))

    def handler(call: Call) -> Reply:
        """GET /openapi.json"""
        return Reply(rendered())

    route = Route(method="GET", path=PATH, handler=handler, public=True)
    return route


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document. Every route must have its operation."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths[WEBSOCKET_PATH] = {"get": _websocket()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strandline",
            "summary": "The topics protocol",
            "description": _ABOUT,
            "version": strandline.__version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _GROUPS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "responses": _refusals(paths),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key. Without configured keys, a server asks for none.",
                }
            },
        },
    }


# --- one operation -------------------------------------------------------------------------------------------------


def _operation(route: Route) -> dict[str, Any]:
    operation = OPERATIONS[route.method, route.path]
    described: dict[str, Any] = {
        "operationId": _id(route),
        "tags": [operation.group],
        "summary": operation.summary,
        "security": [] if route.public else [{}] if route.probe else [{"bearer": []}],
        "responses": _responses(route, operation),
    }
    words = [operation.description] if operation.description else []
    if route.scopes:
        words.append(f"Needs the scope{'s' if len(route.scopes) > 1 else ''} {', '.join(route.scopes)}.")
    if route.own_access:
        words.append("Needs the key that made the session.")
    if words:
        described["description"] = "\n\n".join(words)
    parameters = [*operation.parameters, *([_ENCODING] if route.body != "none" else [])]
    if parameters:
        described["parameters"] = [_parameter(parameter) for parameter in parameters]
    if operation.body is not None:
        described["requestBody"] = {
            # A claim without a body is taken and then refused: somebody has to claim.
            "required": route.body == "required" or _needs_something(operation.body),
            "content": {"application/json": {"schema": _reference(operation.body)}},
        }
    return described


#: The ids of paths that are called like another one under /v0.
_NAMESAKES = {"/health": "get_alive", "/metrics": "get_series_count"}


def _id(route: Route) -> str:
    """``get_topics_topic_consumers``: the method and the path, in the letters that every generator takes."""
    if route.path in _NAMESAKES:
        return _NAMESAKES[route.path]
    parts = [part.strip("{}").replace(".", "_") for part in route.path.split("/") if part not in ("", "v0")]
    return "_".join([route.method.lower(), *parts])


_ENCODING = Parameter(
    "Content-Encoding", "header", "How the body is compressed.", {"type": "string", "enum": ["gzip", "identity"]}
)


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _needs_something(body: type[msgspec.Struct]) -> bool:
    return any(field.required for field in msgspec.structs.fields(body))


# --- answers -------------------------------------------------------------------------------------------------------


def _responses(route: Route, operation: Operation) -> dict[str, Any]:
    responses = {"200": _success(operation, "The answer.")}
    if operation.created:
        responses["201"] = _success(operation, operation.created)
    codes: dict[int, list[str]] = {}
    for code in dict.fromkeys((*_usual_errors(route), *operation.errors)):
        codes.setdefault(PROBLEMS[code].status, []).append(code)
    for status in sorted(codes):
        responses[str(status)] = _refusal_reference(codes[status])
    return responses


def _success(operation: Operation, description: str) -> dict[str, Any]:
    answer = operation.answer
    if isinstance(answer, str):
        schema = {"type": "object"} if operation.media_type == "application/json" else {"type": "string"}
        content: dict[str, Any] = {operation.media_type: {"schema": schema}}
        if operation.as_json is not None:
            content["application/json"] = {"schema": _reference(operation.as_json)}
        return {"description": answer, "content": content}
    return {"description": description, "content": {operation.media_type: {"schema": _reference(answer)}}}


def _usual_errors(route: Route) -> Iterator[str]:
    """The errors of every route of this kind."""
    if route.public:
        yield "throttled"
    else:
        yield from ("unauthorized", "throttled")
    if route.scopes or route.names:
        yield "forbidden"
    if route.body != "none":
        yield from ("invalid_request", "payload_too_large", "unsupported_media_type")
    if route.stream:
        yield "not_acceptable"
    yield "internal"
    if not route.always:
        yield from ("not_ready", "shutting_down")


def _refusal_reference(codes: Sequence[str]) -> dict[str, str]:
    return {"$ref": f"#/components/responses/{'-'.join(codes)}"}


def _refusals(paths: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every refusal that the paths refer to. Many routes have the same ones, so each is in the document once."""
    references = {
        response["$ref"].rpartition("/")[2]
        for operations in paths.values()
        for operation in operations.values()
        for response in operation["responses"].values()
        if "$ref" in response
    }
    return {name: _refusal(name.split("-")) for name in sorted(references)}


def _refusal(codes: Sequence[str]) -> dict[str, Any]:
    problems = [PROBLEMS[code] for code in codes]
    response: dict[str, Any] = {
        "description": "\n".join(f"- `{code}`: {PROBLEMS[code].meaning}" for code in codes),
        "content": {
            "application/json": {
                "schema": {
                    "allOf": [
                        _reference(ErrorAnswer),
                        {"properties": {"error": {"properties": {"code": {"enum": list(codes)}}}}},
                    ]
                }
            }
        },
    }
    if any(problem.retry for problem in problems):
        response["headers"] = {
            "Retry-After": {
                "description": "After how many seconds to try again.",
                "required": all(problem.retry for problem in problems),
                "schema": {"type": "integer", "minimum": 0},
            }
        }
    return response


def _websocket() -> dict[str, Any]:
    return {
        "operationId": "open_websocket",
        "tags": ["watching"],
        "summary": "Subscribe and publish over a WebSocket",
        "description": WEBSOCKET,
        "security": [{"bearer": []}],
        "responses": {
            "101": {"description": "The connection speaks WebSocket from now on."},
            "401": _refusal_reference(["unauthorized"]),
            "404": _refusal(["not_found"]) | {"description": "- `not_found`: The client did not ask for a WebSocket."},
            "429": _refusal_reference(["throttled"]),
            "503": _refusal_reference(["not_ready", "shutting_down"]),
        },
    }


# --- schemas -------------------------------------------------------------------------------------------------------


_REFERENCE = "#/components/schemas/{name}"


def _reference(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(name=struct.__name__)}


def _schemas() -> dict[str, Any]:
    """The schemas of all bodies and answers, by the names of their structs."""
    structs: dict[type[msgspec.Struct], None] = {ErrorAnswer: None}
    for operation in OPERATIONS.values():
        if operation.body is not None:
            structs[operation.body] = None
        if not isinstance(operation.answer, str):
            structs[operation.answer] = None
        if operation.as_json is not None:
            structs[operation.as_json] = None
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    for name, fields in DESCRIPTIONS.items():
        for field, description in fields.items():
            # Beside a reference other members are allowed since OpenAPI 3.1.
            schemas[name]["properties"][field]["description"] = description
    return dict(sorted(schemas.items()))
