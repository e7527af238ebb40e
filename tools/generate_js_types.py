"""Generates ``clients/js/topics_answers.d.ts``: the answers of the topics protocol, as /openapi.json declares them.

``python tools/generate_js_types.py`` writes the file, ``--check`` only checks whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from strandline.protocols.topics import wire

TARGET = Path(__file__).resolve().parents[1] / "clients" / "js" / "topics_answers.d.ts"
#: The answers that the module returns as they are, and the parts of its own objects.
ANSWERS = (
    wire.TopicPut,
    wire.TopicState,
    wire.TopicRow,
    wire.TopicDeleted,
    wire.WriteAnswer,
    wire.ConsumerAnswer,
    wire.ConsumerDeleted,
    wire.AckAnswer,
    wire.NackAnswer,
    wire.ExtendAnswer,
    wire.LostRange,
    wire.JobFailure,
)
#: Details about the time that a request took.
OMITTED = "performance"
HEAD = "// Written by tools/generate_js_types.py from the answers that /openapi.json declares. Do not edit.\n"
SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def types() -> str:
    _, components = msgspec.json.schema_components(ANSWERS, ref_template="{name}")
    wanted = {form.__name__ for form in ANSWERS}
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        found.add(name)
        wanted |= set(references(members(components[name]))) - found
    return HEAD + "".join("\n" + interface(name, components[name]) for name in sorted(found))


def members(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in schema.get("properties", {}).items() if name != OMITTED}


def references(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        part = dict(enumerate(part))
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)


def interface(name: str, schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return f"export type {name} = {text(schema)};\n"
    required = schema.get("required", [])
    lines = []
    for member, of in members(schema).items():
        optional = "" if member in required else "?"
        lines.append(f"  readonly {member}{optional}: {text(of)};\n")
    return f"export interface {name} {{\n{''.join(lines)}}}\n"


def text(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(text(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    if "const" in schema:
        return msgspec.json.encode(schema["const"]).decode()
    kind = schema.get("type")
    if kind == "array":
        item = text(schema.get("items", {}))
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object":
        return f"Record<string, {text(schema.get('additionalProperties') or {})}>"
    return SCALARS.get(kind, "unknown") if isinstance(kind, str) else "unknown"


def main() -> int:
    made = types()
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() != made:
            print(f"not up to date: {TARGET.name}; run python tools/generate_js_types.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
