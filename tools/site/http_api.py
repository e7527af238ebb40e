"""The pages about the HTTP API, from the OpenAPI document of a server that has a table and a collection."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import msgspec

from strandline.collections import AppendOnly, Collection
from strandline.server.application import Application
from strandline.server.declarations import gather
from strandline.server.settings_sources import load
from strandline.tables import make_log

#: How deep the members of objects in objects are listed.
MAX_DEPTH = 3
#: Larger bounds only say that a number has 64 bits.
MAX_BOUND = 1 << 53

#: The pages, and how the paths on each of them begin. Paths that begin otherwise are the server's own.
PAGES = {
    "topics": ("/v0/topics", "/v0/routers", "/v0/watch", "/v0/write", "/v0/ws"),
    "streams": ("/v1/",),
    "collections": ("/push/", "/pull/", "/list/", "/batch/", "/config"),
    "tables": ("/tables/",),
    "arrow": ("/arrow",),
    "console": ("/console",),
}
SERVER_PAGE = "server"

#: A member, its type and its meaning.
_Row = tuple[str, str, str]


class Vote(msgspec.Struct):
    """The rows of the table that stands for all tables."""

    option: int


@cache
def openapi() -> dict[str, Any]:
    """The OpenAPI document that a server answers with. Its paths for tables and collections are examples."""
    notes = Collection(
        name="notes",
        storage_path="notes/{date}",
        read_roles=["cap:read:notes"],
        write_roles=["cap:write:notes"],
        listable=True,
        append_only=AppendOnly(require_author_signature=False),
    )
    declared = gather([make_log("vote", parent="poll", schema=Vote, soft_delete=True, pub=True), notes])
    with tempfile.TemporaryDirectory() as directory:
        settings = load(options={"--data": str(Path(directory) / "data"), "--pipeline": "off"})
        return asyncio.run(_asked(Application(settings, declared=declared)))


async def _asked(application: Application) -> dict[str, Any]:
    app = application.app
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
        while not application.status.ready:
            await asyncio.sleep(0.01)
        answer = await client.get("http://127.0.0.1/openapi.json")
        return answer.json()


def render(page: str) -> str:
    return "\n".join(_Page(openapi()).lines(page))


def _page_of(path: str) -> str:
    return next((page for page, starts in PAGES.items() if path.startswith(starts)), SERVER_PAGE)


class _Page:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def lines(self, page: str) -> Iterator[str]:
        operations: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
        for path, methods in self._document["paths"].items():
            for method, operation in methods.items() if _page_of(path) == page else ():
                operations.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
        for tag in self._document["tags"]:
            if tag["name"] in operations:
                yield from (f"## {tag['name'].capitalize()}", "", tag["description"], "")
                for method, path, operation in operations[tag["name"]]:
                    yield from self._operation(method, path, operation)

    def _operation(self, method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
        yield from (f"### `{method} {path}`", "", f"**{operation['summary']}**", "")
        if "description" in operation:
            yield from (_text(operation["description"]), "")
        if operation.get("parameters"):
            yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
            for parameter in operation["parameters"]:
                needed = ", required" if parameter["required"] and parameter["in"] != "path" else ""
                kind = self._type(parameter["schema"]) + needed
                yield f"| `{parameter['name']}` | {parameter['in']} | {kind} | {_cell(parameter['description'])} |"
            yield ""
        if "requestBody" in operation:
            yield from self._contents("Request body", operation["requestBody"]["content"], is_request=True)
        shown: dict[str, str] = {}
        errors: list[str] = []
        for status, response in operation["responses"].items():
            response = self._found(response)
            codes = re.findall(r"^- (`[^`]+`)", response["description"], re.MULTILINE)
            if status >= "400":
                errors.append(f"{status} {', '.join(codes)}".strip())
                continue
            words = "" if response["description"] == "The answer." else f": {_text(response['description'])}"
            yield from (f"Answer **{status}**{words}", "")
            if "headers" in response:
                yield from ("| header | type | meaning |", "|---|---|---|")
                for name, header in response["headers"].items():
                    yield f"| `{name}` | {self._type(header['schema'])} | {_cell(header['description'])} |"
                yield ""
            body = "\n".join(self._contents("", response.get("content", {})))
            if body:
                same = shown.setdefault(body, status)
                yield body if same == status else f"The body is that of {same}.\n"
        yield from (f"[Errors](../errors.md): {'; '.join(errors)}.", "")

    def _contents(self, title: str, content: Mapping[str, Any], is_request: bool = False) -> Iterator[str]:
        for media_type, form in content.items():
            rows = list(self._members(self._found(form["schema"]), "", MAX_DEPTH, is_request))
            label = f"{title}, `{media_type}`" if title else f"`{media_type}`"
            if not rows:
                yield from (f"{label}: {self._type(form['schema'])}", "")
                continue
            # Many answers have names that say it all.
            width = 3 if any(meaning for _, _, meaning in rows) else 2
            table = [("member", "type", "meaning"), ("---", "---", "---"), *rows]
            yield from (f"{label}:", "", *(f"| {' | '.join(row[:width])} |" for row in table), "")

    def _members(self, schema: Mapping[str, Any], prefix: str, depth: int, is_request: bool) -> Iterator[_Row]:
        """A row for each member of an object, and for the members of objects in it."""
        for name, member in schema.get("properties", {}).items():
            kind = self._type(member)
            if is_request and name in schema.get("required", ()):
                kind += ", required"
            elif is_request and member.get("default") not in (None, "", [], {}):
                kind += f", default `{msgspec.json.encode(member['default']).decode()}`"
            yield f"`{prefix}{name}`", kind, _cell(member.get("description", ""))
            inner = self._object(member)
            if inner is not None and depth > 1:
                yield from self._members(inner[0], f"{prefix}{name}{inner[1]}.", depth - 1, is_request)

    def _object(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], str] | None:
        """The one object that a member is, or is a list of."""
        schema = self._found(schema)
        forms = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
        if len(forms) == 1:
            return self._object(forms[0])
        if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
            inner = self._object(schema["items"])
            return None if inner is None else (inner[0], "[]" + inner[1])
        return (schema, "") if schema.get("properties") else None

    def _found(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            found: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            schema = found
        return schema

    def _type(self, schema: Mapping[str, Any]) -> str:
        schema = self._found(schema)
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return " or ".join(dict.fromkeys(self._type(form) for form in schema[several]))
        if "enum" in schema:
            return ", ".join(f"`{_cell(str(value))}`" for value in schema["enum"])
        if "const" in schema:
            return f"`{_cell(str(schema['const']))}`"
        kind = schema.get("type", "any JSON")
        if isinstance(kind, list):
            return " or ".join(kind)
        if kind == "array":
            items = schema.get("items")
            return f"list of {self._type(items)}" if isinstance(items, Mapping) and items else "list"
        if kind in ("integer", "number"):
            low, high = schema.get("minimum"), schema.get("maximum")
            bounds = [f"≥ {low}"] if low is not None and low > -MAX_BOUND else []
            bounds += [f"≤ {high}"] if high is not None and high < MAX_BOUND else []
            return f"{kind} {', '.join(bounds)}".strip()
        return kind


def _text(text: str) -> str:
    """Plain text of the document as Markdown of a page: a path in braces is code."""
    return re.sub(r"(?<![`\w/{])(\{\w+\})(?!`)", r"`\1`", text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
