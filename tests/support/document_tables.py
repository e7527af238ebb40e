"""The tables in the documents that are generated from the code. Run as a program, it writes them again.

A table stands between two comments, ``<!-- name -->`` and ``<!-- /name -->``.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from strandline.collections import AppendOnly, Collection, QueueEvents
from strandline.delivery.queues import QueueCounters, QueueFigures
from strandline.delivery.queues.activity import Activity
from strandline.engine.follower.follower import FollowerStats
from strandline.engine.replica.replica import ReplicaStats
from strandline.engine.stats import Histogram
from strandline.lake.status import DeclaredStatus, DeclaredTable, PipelineStatus, RoundSummary
from strandline.protocols.arrow.errors import PROBLEMS as ARROW_PROBLEMS
from strandline.protocols.collections.errors import PROBLEMS as COLLECTION_PROBLEMS
from strandline.protocols.console.errors import PROBLEMS as CONSOLE_PROBLEMS
from strandline.protocols.streams.errors import PROBLEMS as STREAM_PROBLEMS
from strandline.protocols.tables.errors import PROBLEMS as TABLE_PROBLEMS
from strandline.protocols.topics.descriptions import DESCRIPTIONS
from strandline.protocols.topics.errors import PROBLEMS as TOPIC_PROBLEMS
from strandline.server.metrics import (
    ConsumerSample,
    LogSample,
    RequestSample,
    RouterSample,
    Snapshot,
    TableHooks,
    WorkerRow,
)
from strandline.server.metrics_text import process_text, render_text
from strandline.server.pipeline.supervisor import PipelineSnapshot
from strandline.server.settings import OPTIONS, SECTIONS, TOPICS_VARIABLES, toml, variable_of
from strandline.server.settings_sources import OTHER_VARIABLES
from strandline.server.traces.exporter import ExportStats
from strandline.server.traces.opentelemetry import VARIABLES as OPENTELEMETRY_VARIABLES
from strandline.service.access import Keys
from strandline.service.log_config import TopicConfig, engine_config, shown_config, traits_of
from strandline.service.problems import Problem
from strandline.service.request_meter import BOUNDS
from strandline.setting import Setting, expected, settings_of
from support.log_matrix import matrix_table

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"

PROBLEMS = {
    "topics": TOPIC_PROBLEMS,
    "streams": STREAM_PROBLEMS,
    "collections": COLLECTION_PROBLEMS,
    "tables": TABLE_PROBLEMS,
    "arrow": ARROW_PROBLEMS,
    "console": CONSOLE_PROBLEMS,
}

#: Of everything that has labels there is one, so that the text has every metric with its labels.
FULL_SNAPSHOT = Snapshot(
    ready=True,
    replay_progress=1.0,
    uptime_ms=1,
    requests=[RequestSample("topics", "GET", "/v0/topics", {200: 1}, Histogram(BOUNDS, (1,) * len(BOUNDS), 0.001, 1))],
    workers=[WorkerRow("bulk", 0, 0, 0)],
    log_rows=[LogSample("orders", 1, 1, 0, 1, 1, 1, QueueFigures(QueueCounters(1, 0, 0, 0), Activity(0).rates(0), 0))],
    router_rows=[RouterSample("copies", 0, 0)],
    consumer_rows=[ConsumerSample("orders", "billing", 0)],
    background={"sealing": 0},
    table_hooks=TableHooks(failures={("vote", "after_append"): 1}),
    replica=ReplicaStats(
        term=1,
        chunk=1,
        waiting_bytes=0,
        waiting_records=0,
        lag_ms=0.0,
        waiting_commits=0,
        waiting_ms=0.0,
        chunks=1,
        chunk_bytes=1,
        objects=1,
        object_bytes=1,
        missing_segments=0,
        away=False,
        superseded=False,
    ),
    follower=FollowerStats(leader="", term=1, chunk=1, lag_ms=0.0, applied_bytes=1, states=1, reloads=0),
    traces=ExportStats(0, 0, 0),
    pipeline=PipelineSnapshot(
        status=PipelineStatus(
            records_total={"records": 1},
            rounds=[RoundSummary(begin=0, end=0)],
            declared=DeclaredStatus(
                project="shop", directory="/srv/shop", tables=[DeclaredTable(name="revenue", kind="sink", lag=0)]
            ),
        )
    ),
)


def settings_tables() -> Iterator[str]:
    """All settings, a table per section: names in the file and in the environment, type, default as TOML, sentence."""
    options = {setting: option for option, setting in OPTIONS.items()}
    for section, struct in SECTIONS.items():
        yield from (f"## `[{section}]`", "", inspect.cleandoc(struct.__doc__ or ""), "")
        yield "| setting and environment variable | type | default | meaning |"
        yield "|---|---|---|---|"
        for setting in settings_of(struct):
            meaning = setting.sentence
            if setting.name in options:
                meaning += f" Also `{options[setting.name]}`."
            names = f"`{setting.name}`<br>`{variable_of(setting.name)}`"
            yield f"| {names} | {_type_of(setting)} | {_default_of(setting)} | {meaning} |"
        yield ""


def _type_of(setting: Setting) -> str:
    if isinstance(setting.default, Keys):
        return "a list of API keys, or API keys with commas between them"
    return expected(setting.type).replace("|", "\\|")


def _default_of(setting: Setting) -> str:
    if isinstance(setting.default, Keys):
        return "`[]`"
    default = f"`{toml(setting.default)}` {setting.unit}".strip()
    if setting.unit == "bytes" and setting.default >= 1 << 10:
        default += f" ({_binary(setting.default)})"
    return default


def _binary(size: int) -> str:
    """``8 MiB``: in the largest unit that gives a whole number."""
    names = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = max(power for power in range(len(names)) if size % (1 << 10 * power) == 0)
    return f"{size >> 10 * power} {names[power]}"


def topics_variables_table() -> Iterator[str]:
    yield "| variable of topics | setting |"
    yield "|---|---|"
    for variable, setting in TOPICS_VARIABLES.items():
        yield f"| `{variable}` | `{setting}` |"


def opentelemetry_variables_table() -> Iterator[str]:
    yield "| variable of OpenTelemetry | setting |"
    yield "|---|---|"
    for variable, setting in OPENTELEMETRY_VARIABLES.items():
        yield f"| `{variable}` | `{setting}` |"


def other_variables_table() -> Iterator[str]:
    yield "| variable | used by |"
    yield "|---|---|"
    for variable, use in OTHER_VARIABLES.items():
        yield f"| `{variable}` | {use} |"


def problems_table(problems: Mapping[str, Problem]) -> Iterator[str]:
    yield "| code | status | retry | when |"
    yield "|---|---|---|---|"
    for code, problem in problems.items():
        retry = "no" if problem.retry_after_ms is None else f"after {problem.retry_after_ms / 1000:g} s"
        yield f"| `{code}` | {problem.status} | {retry} | {problem.meaning} |"


def metrics_table() -> Iterator[str]:
    """The series of ``/v0/metrics``, from the text of a server that has something of everything."""
    text = (render_text(FULL_SNAPSHOT) + process_text()).decode()
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, flags=re.MULTILINE))
    for name, help in re.findall(r"^# HELP (\S+) (.*)$", text, flags=re.MULTILINE):
        labels = re.search(rf"^{name}(?:_bucket)?\{{(.*)\}} ", text, flags=re.MULTILINE)
        names = re.findall(r'(\w+)="', labels[1]) if labels else []
        yield f"| `{name}` | {types[name]} | {', '.join(f'`{label}`' for label in names)} | {help} |"


def options_table(struct: type[msgspec.Struct]) -> Iterator[str]:
    """The fields of something that is configured."""
    meanings = _comments(struct)
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(struct):
        nothing = field.default in (None, (), msgspec.NODEFAULT)
        default = "needed" if field.required else "none" if nothing else f"`{toml(field.default)}`"
        yield f"| `{field.name}` | {default} | {meanings[field.name]} |"


def queue_configuration_table() -> Iterator[str]:
    """What a queue can be configured with, as it is when nothing is said."""
    config = engine_config("queue", TopicConfig(), "queue")
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for name, default in msgspec.structs.asdict(shown_config(config, traits_of(config), {})).items():
        if default is msgspec.UNSET:  # left out of answers
            default = getattr(TopicConfig(), name)
        nothing = default in (None, msgspec.UNSET)
        shown = "needed" if name == "type" else "none" if nothing else f"`{json.dumps(default)}`"
        yield f"| `{name}` | {shown} | {DESCRIPTIONS['TopicConfig'][name]} |"


#: Every table with the document that it is in.
GENERATED: dict[str, tuple[Path, Callable[[], Iterator[str]]]] = {
    "settings": (REFERENCE / "settings.md", settings_tables),
    "topics-variables": (REFERENCE / "settings.md", topics_variables_table),
    "opentelemetry-variables": (REFERENCE / "settings.md", opentelemetry_variables_table),
    "other-variables": (REFERENCE / "settings.md", other_variables_table),
    "metrics": (REFERENCE / "metrics.md", metrics_table),
    **{f"{name}-errors": (REFERENCE / "errors.md", partial(problems_table, codes)) for name, codes in PROBLEMS.items()},
    "collection-options": (REFERENCE / "collections.md", partial(options_table, Collection)),
    "append-only-options": (REFERENCE / "collections.md", partial(options_table, AppendOnly)),
    "queue-options": (REFERENCE / "collections.md", partial(options_table, QueueEvents)),
    "log-reads": (REFERENCE / "logs-and-protocols.md", partial(matrix_table, False)),
    "log-changes": (REFERENCE / "logs-and-protocols.md", partial(matrix_table, True)),
    "queue-configuration": (REFERENCE / "queues.md", queue_configuration_table),
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


if __name__ == "__main__":
    for name, (path, lines) in GENERATED.items():
        path.write_text(with_table(path.read_text(), name, lines()))
