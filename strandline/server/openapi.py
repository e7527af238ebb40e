"""The OpenAPI document: combines routes, structs and descriptions once, and serves the result as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

import strandline
from strandline.protocols.arrow.openapi import ARROW
from strandline.protocols.console.openapi import CONSOLE
from strandline.protocols.streams.openapi import STREAMS
from strandline.protocols.topics.openapi import TOPICS
from strandline.server.documentation import DOCUMENTATION
from strandline.server.openapi_routes import DOCUMENT_PATH, SERVER
from strandline.service.http import Call, Reply, Route
from strandline.service.openapi import JSON, Content, Described, Header, Operation, Parameter
from strandline.service.problems import (
    DAMAGED_DATA,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    NOT_ACCEPTABLE,
    NOT_READY,
    PAYLOAD_TOO_LARGE,
    SHUTTING_DOWN,
    THROTTLED,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA_TYPE,
    Problem,
)

#: The descriptions of the routes that every server has.
DESCRIBED: tuple[Described, ...] = (TOPICS, STREAMS, ARROW, CONSOLE, SERVER, DOCUMENTATION)

_ABOUT = """A server for append-only logs, with four protocols over the same logs.

- Topics, under `/v0`: write with `POST /v0/topics/{topic}`, read with `POST /v0/topics/{topic}/diff`, watch with
  `POST /v0/watch`, claim jobs with `POST /v0/topics/{topic}/claim`.
- Streams, under `/v1`: create a stream with `PUT /v1/stream/{name}`, append to it with `POST` and read it with `GET`.
- Collections, under the paths of their configuration: append with `POST /push/…`, read with `GET /pull/…`.
- Tables, under `/tables`: typed rows of the tables that the server declares.

`/arrow` reads and appends records of any log in bulk, as Arrow.

Times are in milliseconds since 1970 unless noted otherwise. Answers may get new members. A request body may be
compressed with gzip. Large answers are compressed if the client accepts gzip."""


def openapi_route(routes: Sequence[Route], further: Sequence[Described] = ()) -> Route:
    """The route of the document about these routes and itself. It needs no API key.

    ``further`` are descriptions of routes that only this server has."""

    @cache
    def rendered() -> bytes:
        return msgspec.json.encode(document([*routes, route], further))

    def handler(call: Call) -> Reply:
        """GET /openapi.json"""
        return Reply(rendered())

    route = Route(method="GET", path=DOCUMENT_PATH, handler=handler, public=True)
    return route


def document(routes: Iterable[Route], further: Sequence[Described] = ()) -> dict[str, Any]:
    """The whole document. Routes without a description are left out."""
    everybody = (*DESCRIBED, *further)
    paths: dict[str, dict[str, Any]] = {}
    refusals: dict[str, Any] = {}
    for route in routes:
        for described in everybody:
            operation = described.operations.get((route.method, route.path))
            if operation is not None:
                paths.setdefault(route.path, {})[route.method.lower()] = _operation(
                    described, route, operation, refusals
                )
    for described in everybody:
        for path, operation in described.sockets.items():
            paths[path] = {"get": _socket(described, path, operation, refusals)}
    groups = {name: text for described in everybody for name, text in described.groups.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strandline",
            "summary": "Topics, streams, collections and tables over append-only logs",
            "description": _ABOUT,
            "version": strandline.__version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in groups.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(everybody),
            "responses": dict(sorted(refusals.items())),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key. Not needed if the server has no API keys.",
                },
                "cap": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`Cap` and a certificate, with the headers `X-Starfish-Ts`, `X-Starfish-Nonce` and "
                    "`X-Starfish-Sig` that sign the request.",
                },
            },
        },
    }


def is_described(route: Route, further: Sequence[Described] = ()) -> bool:
    """Whether a description covers the route, or declares that its path does not exist."""
    return any(
        (route.method, route.path) in described.operations or route.path in described.nothing
        for described in (*DESCRIBED, *further)
    )


# --- operations ----------------------------------------------------------------------------------------------------


def _operation(described: Described, route: Route, operation: Operation, refusals: dict[str, Any]) -> dict[str, Any]:
    words = [operation.description] if operation.description else []
    if route.scopes:
        words.append(f"Needs the scope{'s' if len(route.scopes) > 1 else ''} {', '.join(route.scopes)}.")
    usual = (described.renamed.get(problem, problem).code for problem in _usual_errors(route))
    shown: dict[str, Any] = {
        "operationId": _id(route.method, route.path),
        "tags": [operation.group],
        "summary": operation.summary,
        **({"description": "\n\n".join(words)} if words else {}),
        "security": _security(route),
        "responses": _responses(described, route.method, operation, [*usual, *operation.errors], refusals),
    }
    parameters = [*operation.parameters, *([_ENCODING] if operation.body is not None else [])]
    if parameters:
        shown["parameters"] = [_parameter(parameter) for parameter in parameters]
    if operation.body is not None:
        shown["requestBody"] = {
            # The route accepts a claim without a body, but the handler refuses it: the body names the worker.
            "required": route.body == "required" or operation.needs_body or _needs_something(operation.body),
            "content": _content(operation.body),
        }
    return shown


def _security(route: Route) -> list[dict[str, list[str]]]:
    if route.public:
        return []
    if route.certified:
        # Public operations of collections need no key.
        return [{}, {"cap": []}]
    return [{}] if route.probe else [{"bearer": []}]


def _socket(described: Described, path: str, operation: Operation, refusals: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": _id("open", path),
        "tags": [operation.group],
        "summary": operation.summary,
        "description": operation.description,
        "security": [{"bearer": []}],
        "responses": _responses(described, "GET", operation, operation.errors, refusals),
    }


#: The ids of paths whose id would otherwise be the same as that of a protocol's path.
_NAMESAKES = {"/health": "get_alive", "/metrics": "get_series_count"}


def _id(method: str, path: str) -> str:
    """``get_topics_topic_consumers``: the method and the path, in characters that every code generator accepts."""
    if path in _NAMESAKES:
        return _NAMESAKES[path]
    parts = [part.strip("{}_").replace(".", "_") for part in path.split("/") if part not in ("", "v0", "v1")]
    return "_".join([method.lower(), *parts])


_ENCODING = Parameter(
    "Content-Encoding", "header", "The compression of the body.", {"type": "string", "enum": ["gzip", "identity"]}
)


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _needs_something(body: Content) -> bool:
    """Whether the body is required: every form of it is a struct with a required field."""
    return all(
        isinstance(form, type)
        and issubclass(form, msgspec.Struct)
        and any(field.required for field in msgspec.structs.fields(form))
        for form in body.values()
    )


def _content(content: Content) -> dict[str, Any]:
    return {
        media_type: {"schema": form if isinstance(form, Mapping) else _schema(form)}
        for media_type, form in content.items()
    }


def _headers(headers: Iterable[Header]) -> dict[str, Any]:
    return {
        header.name: {"description": header.description, "required": header.required, "schema": header.schema}
        for header in headers
    }


# --- answers -------------------------------------------------------------------------------------------------------


def _responses(
    described: Described, method: str, operation: Operation, errors: Iterable[str], refusals: dict[str, Any]
) -> dict[str, Any]:
    """All answers by status. Refusals that several routes share are in the document once."""
    responses: dict[str, Any] = {}
    for answer in operation.answers:
        response: dict[str, Any] = {"description": answer.description}
        if answer.headers:
            response["headers"] = _headers(answer.headers)
        if answer.content:
            response["content"] = _content(answer.content)
        responses[str(answer.status)] = response
    codes: dict[int, list[str]] = {}
    for code in dict.fromkeys(errors):
        codes.setdefault(described.problems[code].status, []).append(code)
    for status in sorted(codes):
        refusal = _refusal(described, codes[status], operation.error_headers.get(status, ()))
        if method == "HEAD":
            del refusal["content"]
        if str(status) in responses:
            responses[str(status)] = _either(responses[str(status)], refusal)
        elif status in operation.error_headers or method == "HEAD":
            responses[str(status)] = refusal
        else:
            name = f"{described.name}.{'-'.join(codes[status])}"
            refusals[name] = refusal
            responses[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return responses


def _usual_errors(route: Route) -> Iterator[Problem]:
    """The problems that every route of this kind can return."""
    if not route.public and not route.own_access:
        yield UNAUTHORIZED
    yield THROTTLED
    if route.scopes or route.names:
        yield FORBIDDEN
    if route.body != "none":
        yield from (INVALID_REQUEST, PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE)
    if route.stream:
        yield NOT_ACCEPTABLE
    if not route.always:
        yield DAMAGED_DATA
    yield INTERNAL
    if not route.always:
        yield from (NOT_READY, SHUTTING_DOWN)


def _refusal(described: Described, codes: Sequence[str], headers: Sequence[Header]) -> dict[str, Any]:
    problems = [described.problems[code] for code in codes]
    stated = [*headers]
    if any(problem.retry for problem in problems):
        always = all(problem.retry for problem in problems)
        words = "The number of seconds to wait before retrying."
        stated.append(Header("Retry-After", words, {"type": "integer", "minimum": 0}, always))
    schema = _schema(described.error)
    if described.coded:
        schema = {"allOf": [schema, {"properties": {"error": {"properties": {"code": {"enum": list(codes)}}}}}]}
    return {
        "description": "\n".join(f"- `{code}`: {described.problems[code].meaning}" for code in codes),
        **({"headers": _headers(stated)} if stated else {}),
        "content": {JSON: {"schema": schema}},
    }


def _either(answer: Mapping[str, Any], refusal: Mapping[str, Any]) -> dict[str, Any]:
    """An answer and a refusal with the same status."""
    schemas = [response["content"][JSON]["schema"] for response in (answer, refusal)]
    headers = {name: {**header, "required": False} for name, header in answer.get("headers", {}).items()}
    return {
        "description": f"{answer['description']}\n\n{refusal['description']}",
        **({"headers": headers} if headers else {}),
        "content": {JSON: {"schema": {"anyOf": schemas}}},
    }


# --- schemas -------------------------------------------------------------------------------------------------------


_REFERENCE = "#/components/schemas/{name}"


def _schema(form: Any) -> dict[str, Any]:
    """The schema of a type, with references for the structs in it."""
    (schema,), _ = msgspec.json.schema_components((form,), ref_template=_REFERENCE)
    return schema


def _forms(described: Described) -> Iterator[Any]:
    yield described.error
    for operation in described.operations.values():
        contents = [answer.content for answer in operation.answers]
        for content in contents if operation.body is None else [operation.body, *contents]:
            yield from (form for form in content.values() if not isinstance(form, Mapping))


def _schemas(everybody: Sequence[Described]) -> dict[str, Any]:
    """The schemas of all bodies and answers, by the names of their structs."""
    forms = dict.fromkeys(form for described in everybody for form in _forms(described))
    _, schemas = msgspec.json.schema_components(forms, ref_template=_REFERENCE)
    for described in everybody:
        schemas |= described.schemas
        for name, fields in described.descriptions.items():
            for field, description in fields.items():
                # OpenAPI 3.1 allows other members beside a reference.
                schemas[name]["properties"][field]["description"] = description
    return dict(sorted(schemas.items()))
