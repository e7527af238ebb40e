"""The tables in the documents that are made of what the code knows. Run as a program, it writes them anew.

A table stands between two comments, ``<!-- name -->`` and ``<!-- /name -->``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from strandline.collections import AppendOnly, Collection, QueueEvents
from strandline.protocols.access import Keys
from strandline.protocols.openapi import Problem
from strandline.protocols.streams.problems import PROBLEMS as STREAM_PROBLEMS
from strandline.protocols.tables.problems import PROBLEMS as TABLE_PROBLEMS
from strandline.protocols.topics.config import TopicConfig, config_json, engine_config, traits_of
from strandline.protocols.topics.descriptions import DESCRIPTIONS
from strandline.protocols.topics.problems import PROBLEMS
from strandline.server.settings import TABLES
from strandline.server.settings_sources import OPTIONS, VARIABLES

ROOT = Path(__file__).parents[1]


def settings_table() -> Iterator[str]:
    """All settings with their names in the file and in the environment. Their meaning is the comment above them."""
    variables = {field: variable for variable, field in VARIABLES.items()}
    options = {field: option for option, field in OPTIONS.items()}
    yield "| in the file | environment variable | default | meaning |"
    yield "|---|---|---|---|"
    for table, struct in TABLES.items():
        meanings = _comments(struct)
        for field in msgspec.structs.fields(struct):
            meaning = meanings[field.name]
            if field.name in options:
                meaning += f" Also `{options[field.name]}`."
            name = f"`{table}.{field.name}`"
            yield f"| {name} | `{variables[field.name]}` | {_default(field.default)} | {meaning} |"


def problems_table(problems: Mapping[str, Problem]) -> Iterator[str]:
    yield "| status | code | when |"
    yield "|---|---|---|"
    for code, problem in problems.items():
        retry = " Has a `Retry-After`." if problem.retry else ""
        yield f"| {problem.status} | `{code}` | {problem.meaning}{retry} |"


def options_table(struct: type[msgspec.Struct]) -> Iterator[str]:
    """The fields of something that is configured."""
    meanings = _comments(struct)
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(struct):
        nothing = field.default in (None, (), msgspec.NODEFAULT)
        default = "needed" if field.required else "none" if nothing else _default(field.default)
        yield f"| `{field.name}` | {default} | {meanings[field.name]} |"


def queue_configuration_table() -> Iterator[str]:
    """What a queue can be configured with, as it is when nothing is said."""
    config = engine_config("queue", TopicConfig(), "queue")
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for name, default in config_json(config, traits_of(config)).items():
        shown = "needed" if name == "type" else "none" if default is None else _default(default)
        yield f"| `{name}` | {shown} | {DESCRIPTIONS['TopicConfig'][name]} |"


#: Every table with the document that it is in.
GENERATED: dict[str, tuple[Path, Callable[[], Iterator[str]]]] = {
    "settings": (ROOT / "docs/operations.md", settings_table),
    "collection-options": (ROOT / "docs/collections.md", partial(options_table, Collection)),
    "append-only-options": (ROOT / "docs/collections.md", partial(options_table, AppendOnly)),
    "queue-options": (ROOT / "docs/collections.md", partial(options_table, QueueEvents)),
    "queue-configuration": (ROOT / "docs/queues.md", queue_configuration_table),
    "errors": (ROOT / "docs/topics.md", partial(problems_table, PROBLEMS)),
    "table-errors": (ROOT / "docs/tables.md", partial(problems_table, TABLE_PROBLEMS)),
    "stream-errors": (ROOT / "docs/streams.md", partial(problems_table, STREAM_PROBLEMS)),
}


def with_table(text: str, name: str, lines: Iterator[str]) -> str:
    """The document with this table in its place."""
    table = "\n".join([f"<!-- {name} -->", *lines, f"<!-- /{name} -->"])
    replaced, count = re.subn(rf"<!-- {name} -->.*<!-- /{name} -->", lambda _: table, text, flags=re.DOTALL)
    assert count == 1, f"the document has no place for the table {name}"
    return replaced


def _comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What the ``#:`` comments above fields say, by field."""
    comments: dict[str, str] = {}
    pending: list[str] = []
    for line in inspect.getsource(struct).splitlines():
        stripped = line.strip()
        if stripped.startswith("#:"):
            pending.append(stripped[2:].strip())
        elif field := re.match(r"(\w+): ", stripped):
            if pending:
                comments[field[1]] = " ".join(pending)
            pending = []
    return comments


def _default(value: object) -> str:
    if isinstance(value, Keys) or value == "":
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


if __name__ == "__main__":
    for name, (path, lines) in GENERATED.items():
        path.write_text(with_table(path.read_text(), name, lines()))
