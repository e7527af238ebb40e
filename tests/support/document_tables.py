"""The tables in the documents that are generated from the code. Run as a program, it writes them again.

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
from strandline.protocols.streams.errors import PROBLEMS as STREAM_PROBLEMS
from strandline.protocols.tables.errors import PROBLEMS as TABLE_PROBLEMS
from strandline.protocols.topics.descriptions import DESCRIPTIONS
from strandline.protocols.topics.errors import PROBLEMS
from strandline.server.settings import OPTIONS, SECTIONS, TOPICS_VARIABLES, toml, variable_of
from strandline.server.settings_sources import OTHER_VARIABLES
from strandline.service.access import Keys
from strandline.service.log_config import TopicConfig, engine_config, shown_config, traits_of
from strandline.service.problems import Problem
from strandline.setting import settings_of

ROOT = Path(__file__).parents[2]


def settings_table() -> Iterator[str]:
    """All settings with their names in the file and in the environment, their defaults as TOML, and their sentences."""
    options = {setting: option for option, setting in OPTIONS.items()}
    yield "| in the file | environment variable | default | meaning |"
    yield "|---|---|---|---|"
    for section, struct in SECTIONS.items():
        for setting in settings_of(struct):
            is_secret = isinstance(setting.default, Keys)
            default = "none" if is_secret else f"`{toml(setting.default)}` {setting.unit}".strip()
            meaning = setting.sentence
            if setting.name in options:
                meaning += f" Also `{options[setting.name]}`."
            yield f"| `{section}.{setting.name}` | `{variable_of(setting.name)}` | {default} | {meaning} |"


def topics_variables_table() -> Iterator[str]:
    yield "| variable of topics | setting |"
    yield "|---|---|"
    for variable, setting in TOPICS_VARIABLES.items():
        yield f"| `{variable}` | `{setting}` |"


def other_variables_table() -> Iterator[str]:
    yield "| variable | used by |"
    yield "|---|---|"
    for variable, use in OTHER_VARIABLES.items():
        yield f"| `{variable}` | {use} |"


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
    for name, default in msgspec.structs.asdict(shown_config(config, traits_of(config))).items():
        shown = "needed" if name == "type" else "none" if default is None else _default(default)
        yield f"| `{name}` | {shown} | {DESCRIPTIONS['TopicConfig'][name]} |"


#: Every table with the document that it is in.
GENERATED: dict[str, tuple[Path, Callable[[], Iterator[str]]]] = {
    "settings": (ROOT / "docs/how-to/operations.md", settings_table),
    "topics-variables": (ROOT / "docs/how-to/operations.md", topics_variables_table),
    "other-variables": (ROOT / "docs/how-to/operations.md", other_variables_table),
    "collection-options": (ROOT / "docs/tutorials/collections.md", partial(options_table, Collection)),
    "append-only-options": (ROOT / "docs/tutorials/collections.md", partial(options_table, AppendOnly)),
    "queue-options": (ROOT / "docs/tutorials/collections.md", partial(options_table, QueueEvents)),
    "queue-configuration": (ROOT / "docs/tutorials/queues.md", queue_configuration_table),
    "errors": (ROOT / "docs/tutorials/topics.md", partial(problems_table, PROBLEMS)),
    "table-errors": (ROOT / "docs/tutorials/tables.md", partial(problems_table, TABLE_PROBLEMS)),
    "stream-errors": (ROOT / "docs/tutorials/streams.md", partial(problems_table, STREAM_PROBLEMS)),
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
    if value == "":
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


if __name__ == "__main__":
    for name, (path, lines) in GENERATED.items():
        path.write_text(with_table(path.read_text(), name, lines()))
