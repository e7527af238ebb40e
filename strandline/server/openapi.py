"""The OpenAPI document, built once from routes, structs and descriptions, and served as bytes."""

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
from strandline.server.browser_module import BROWSER_MODULE
from strandline.server.documentation import DOCUMENTATION
from strandline.server.openapi_routes import DOCUMENT_PATH, SERVER
from strandline.service.http import Call, Reply, Route
from strandline.service.openapi import JSON, Content, Described, Header, Operation, Parameter
from strandline.service.problems import (
    DAMAGED_DATA,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    NO_REPLICA,
    NOT_ACCEPTABLE,
    NOT_READY,
    PAYLOAD_TOO_LARGE,
    READ_ONLY,
    REPLICA_AWAY,
    REPLICA_BEHIND,
    SHUTTING_DOWN,
    STANDBY,
    THROTTLED,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA_TYPE,
    Problem,
)

#: The descriptions of the routes that every server has.
DESCRIBED: tuple[Described, ...] = (TOPICS, STREAMS, ARROW, CONSOLE, SERVER, DOCUMENTATION, BROWSER_MODULE)

_ABOUT = """Strandline is an append-only log server. Four protocols read and write the same logs:

- topics, under `/v0`: write with `POST /v0/topics/{topic}`, read with `POST /v0/topics/{topic}/diff`, watch with
  `POST /v0/watch`, and claim jobs with `POST /v0/topics/{topic}/claim`;
- streams, under `/v1`: create a stream with `PUT /v1/stream/{name}`, append with `POST` and read with `GET` at the same
  path;
- collections, at the paths in their configuration: append with `POST /push/…`, read with `GET /pull/…`;
- tables, under `/tables`: each declared table has its own operations.

Under `/arrow` you can read and append the records of any log in bulk, as Arrow.

Times are in milliseconds since 1970 unless stated otherwise. New members may be added to answers at any time, so ignore
members that you do not know. The body of a request may be compressed with gzip or deflate. Large answers are compressed
if the client accepts zstd, br or gzip. Every path that answers `GET` answers `HEAD` as well, with the same headers and
without a body."""


def openapi_route(routes: Sequence[Route], further: Sequence[Described] = ()) -> Route:
    """The public route of the document that describes these routes and itself.

    ``further`` are the descriptions of routes that only this server has: those of its collections and tables.
    """

    @cache
    def rendered() -> bytes:
        return msgspec.json.encode(document([*routes, route], further))

    def handler(call: Call) -> Reply:
        """GET /openapi.json"""
        return Reply(rendered())

    route = Route(method="GET", path=DOCUMENT_PATH, handler=handler, public=True)
    return route


def document(routes: Iterable[Route], further: Sequence[Described] = ()) -> dict[str, Any]:
    """The whole document. It leaves out routes without a description."""
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
                    "description": "An API key. A server without configured API keys requires none.",
                },
                "cap": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`Cap` and a certificate. The headers `X-Starfish-Ts`, `X-Starfish-Nonce` and "
                    "`X-Starfish-Sig` sign the request.",
                },
            },
        },
    }


def is_described(route: Route, further: Sequence[Described] = ()) -> bool:
    """Whether a description covers the route, or declares that nothing exists at its path."""
    return any(
        (route.method, route.path) in described.operations or route.path in described.nothing
        for described in (*DESCRIBED, *further)
    )


# --- one operation -------------------------------------------------------------------------------------------------


def _operation(described: Described, route: Route, operation: Operation, refusals: dict[str, Any]) -> dict[str, Any]:
    words = [operation.description] if operation.description else []
    if route.scopes:
        words.append(f"Requires the scope{'s' if len(route.scopes) > 1 else ''} {', '.join(route.scopes)}.")
    usual = (described.renamed.get(problem, problem).code for problem in _usual_errors(described, route, operation))
    shown: dict[str, Any] = {
        "operationId": _id(route.method, route.path),
        "tags": [operation.group],
        "summary": operation.summary,
        **({"description": "\n\n".join(words)} if words else {}),
        "security": _security(route),
        "responses": _responses(described, route.method, operation, [*usual, *operation.errors], refusals),
    }
    parameters = [
        *operation.parameters,
        *([_MIN_SEQ] if route.reads_log else []),
        *([_ENCODING] if operation.body is not None else []),
    ]
    if parameters:
        shown["parameters"] = [_parameter(parameter) for parameter in parameters]
    if operation.body is not None:
        shown["requestBody"] = {
            # The gate accepts a claim without a body, but its handler requires the member `worker`.
            "required": route.body == "required" or operation.needs_body or _needs_something(operation.body),
            "content": _content(operation.body),
        }
    return shown


def _security(route: Route) -> list[dict[str, list[str]]]:
    if route.public:
        return []
    if route.certified:
        # Public operations of a collection need no certificate.
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


#: The operation ids of paths whose names also exist below `/v0`.
_NAMESAKES = {"/health": "alive", "/metrics": "series_count"}


def _id(method: str, path: str) -> str:
    """The method and the path as an identifier for code generators, such as ``get_topics_topic_consumers``."""
    if path in _NAMESAKES:
        return f"{method.lower()}_{_NAMESAKES[path]}"
    parts = [part.strip("{}_").replace(".", "_") for part in path.split("/") if part not in ("", "v0", "v1")]
    return "_".join([method.lower(), *parts])


_MIN_SEQ = Parameter(
    "min_seq",
    "query",
    "The log must have this sequence number. A server that follows another one waits for it, for up to five seconds.",
    {"type": "integer", "minimum": 0},
)
_ENCODING = Parameter(
    "Content-Encoding",
    "header",
    "The compression of the body.",
    {"type": "string", "enum": ["gzip", "deflate", "identity"]},
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
    """Whether a body is required because every form of it is a struct with a required field."""
    return all(
        isinstance(form, type)
        and issubclass(form, msgspec.Struct)
        and any(field.required for field in msgspec.structs.fields(form))
        for form in body.values()
    )


def _content(content: Content) -> dict[str, Any]:
    return {media_type: {"schema": _schema_of(form)} for media_type, form in content.items()}


def _schema_of(form: Any) -> Any:
    if isinstance(form, tuple):
        return {"anyOf": [_schema(each) for each in form]}
    return form if isinstance(form, Mapping) else _schema(form)


def _headers(headers: Iterable[Header]) -> dict[str, Any]:
    return {
        header.name: {"description": header.description, "required": header.required, "schema": header.schema}
        for header in headers
    }


# --- answers -------------------------------------------------------------------------------------------------------


def _responses(
    described: Described, method: str, operation: Operation, errors: Iterable[str], refusals: dict[str, Any]
) -> dict[str, Any]:
    """All answers by status. Routes share the descriptions of errors, so that each of them is in the document once."""
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


def _usual_errors(described: Described, route: Route, operation: Operation) -> Iterator[Problem]:
    """The problems that all routes of this kind share."""
    if not route.public and not route.own_access:
        yield UNAUTHORIZED
    yield THROTTLED
    if route.scopes or route.names:
        yield FORBIDDEN
    if route.body != "none" or route.reads_log:
        yield INVALID_REQUEST
    if route.body != "none":
        yield from (PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE)
    if route.stream:
        yield NOT_ACCEPTABLE
    if not route.always:
        yield DAMAGED_DATA
    yield INTERNAL
    if not route.always:
        yield from (NOT_READY, STANDBY, SHUTTING_DOWN)
    if described.renamed.get(READ_ONLY, READ_ONLY).code in operation.errors:
        # A route that changes logs.
        for problem in (REPLICA_BEHIND, REPLICA_AWAY, NO_REPLICA):
            if described.renamed.get(problem, problem).code in described.problems:
                yield problem


def _refusal(described: Described, codes: Sequence[str], headers: Sequence[Header]) -> dict[str, Any]:
    problems = [described.problems[code] for code in codes]
    stated = [*headers]
    if any(problem.retry for problem in problems):
        always = all(problem.retry for problem in problems)
        words = "The number of seconds to wait before you retry."
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
    """The combined description of an answer and an error with the same status."""
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
            for form in content.values():
                yield from form if isinstance(form, tuple) else () if isinstance(form, Mapping) else (form,)


def _schemas(everybody: Sequence[Described]) -> dict[str, Any]:
    """The schemas of all bodies and answers, by the names of their structs."""
    forms = dict.fromkeys(form for described in everybody for form in _forms(described))
    _, schemas = msgspec.json.schema_components(forms, ref_template=_REFERENCE)
    for described in everybody:
        schemas |= described.schemas
        for name, fields in described.descriptions.items():
            for field, description in fields.items():
                # OpenAPI 3.1 allows other members next to a reference.
                schemas[name]["properties"][field]["description"] = description
    return dict(sorted(schemas.items()))
