"""Where settings come from: a TOML file, over it environment variables, over them options of the command line.

Every value is checked where it stands, so that the message names the very file, variable or option to change.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from strandline.protocols.access import BadKeys, Keys
from strandline.server.settings import (
    TABLES,
    BadSettings,
    Count,
    Host,
    Hosts,
    Networks,
    Origins,
    Port,
    Positive,
    Settings,
    Text,
    Texts,
    check,
)

#: Variables begin like this, by their table where it has one of its own; one that does and means nothing is worth a
#: warning.
PREFIX = "TOPICS_"
OWN_PREFIXES = {"streams": "STREAMS_", "collections": "COLLECTIONS_"}
PREFIXES = (PREFIX, *OWN_PREFIXES.values())

#: Type and table of every setting.
FIELDS: dict[str, tuple[Any, str]] = {
    field.name: (field.type, table) for table, struct in TABLES.items() for field in msgspec.structs.fields(struct)
}

#: Settings that the variables call by another name.
_OTHER_NAMES = {
    "min_heartbeat_ms": "TOPICS_TEST_MIN_HEARTBEAT_MS",
    "cold_url": "TOPICS_COLD_DIR",
    "journal_bytes": "TOPICS_SEGMENT_MAX_BYTES",
    "hot_segments": "TOPICS_HOT_RETAIN_SEGMENTS",
    "hot_bytes": "TOPICS_HOT_RETAIN_BYTES",
    "stream_durability": "STREAMS_DURABILITY",
}
VARIABLES: dict[str, str] = {
    _OTHER_NAMES.get(field, OWN_PREFIXES.get(table, PREFIX) + field.upper()): field
    for field, (_, table) in FIELDS.items()
}

#: What the table of collections has besides settings: tables that describe collections.
COLLECTION_TABLES = ("collection", "namespace", "rate_limit")

#: Variables of the protocol's reference that cannot mean anything here, and why.
WITHOUT_MEANING: dict[str, tuple[Any, str]] = {
    "TOPICS_WAL_SHARDS": (Positive, "there is one journal for all topics, and its writers share their flushes"),
    "TOPICS_SEGMENT_MAX_EVENTS": (
        Positive,
        "a journal becomes a segment by its size in bytes (TOPICS_SEGMENT_MAX_BYTES), however many records it holds",
    ),
    "TOPICS_SEGMENT_MAX_AGE_MS": (
        Count,
        "a journal becomes a segment by its size in bytes (TOPICS_SEGMENT_MAX_BYTES), however old it is",
    ),
    "STREAMS_OPEN_PREFLIGHT": (
        Text,
        "browsers may always ask without a key what they may send; which pages may send it is decided by "
        "TOPICS_ALLOWED_ORIGINS",
    ),
    "TOPICS_TEST_EXHAUSTIVE": (Text, "it is about running tests, not about a server"),
    "TOPICS_TEST_SAMPLE": (Text, "it is about running tests, not about a server"),
}

#: Options of the command line that set something.
OPTIONS: dict[str, str] = {
    "--host": "host",
    "--port": "port",
    "--port-file": "port_file",
    "--data": "data_dir",
    "--no-fast-lane": "fast_lane",
    "--log-level": "log_level",
    "--pipeline": "pipeline",
    "--lake": "lake",
    "--declare": "declare",
}


class _Given(NamedTuple):
    """A value, and where it stands. In a variable everything is text; elsewhere a number is a number."""

    source: str
    value: object
    is_text: bool = False


def load(
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> Settings:
    """Defaults, then the file, then the variables, then the options (by their names, as in ``OPTIONS``)."""
    environment, options = environment or {}, options or {}
    warnings = list(_meaningless(environment))
    chosen: dict[str, Any] = {}
    document = {} if config is None else _parse(config)
    collections = _collection_tables(document)
    for given in (
        {} if config is None else _from_file(config, document),
        {VARIABLES[name]: _variable(name, value) for name, value in environment.items() if name in VARIABLES},
        {OPTIONS[name]: _Given(name, value) for name, value in options.items()},
    ):
        warnings += _split_host(given)
        chosen |= {field: _convert(FIELDS[field][0], one) for field, one in given.items()}
    tables = {
        name: struct(**{field: value for field, value in chosen.items() if FIELDS[field][1] == name})
        for name, struct in TABLES.items()
    }
    settings = Settings(**tables, collection_tables=collections)  # type: ignore[arg-type]  # each table is of its type
    check(settings)
    warnings += settings.collections_config().warnings
    return msgspec.structs.replace(settings, warnings=tuple(warnings))


# --- the file --------------------------------------------------------------------------------------------------


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not a TOML file: {error}") from None


def _collection_tables(document: dict[str, Any]) -> dict[str, Any]:
    """Take out of a document what describes collections: it is read by those who know them."""
    table = document.get("collections")
    if not isinstance(table, dict):
        return {}
    return {name: table.pop(name) for name in COLLECTION_TABLES if name in table}


def _from_file(path: Path, document: dict[str, Any]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for table, values in document.items():
        if table not in TABLES or not isinstance(values, dict):
            raise BadSettings(_unknown_table(path, table, values))
        for field, value in values.items():
            if FIELDS.get(field, (None, None))[1] != table:
                raise BadSettings(f"{path} has an unknown key {table}.{field}{_nearest_key(table, field)}")
            given[field] = _Given(f"{table}.{field} in {path}", value)
    return given


def _unknown_table(path: Path, name: str, values: object) -> str:
    if isinstance(values, dict):
        return f"{path} has an unknown table [{name}]{_nearest(f'[{name}]', [f'[{table}]' for table in TABLES])}"
    if name in TABLES:
        return f"{path}: {name} must be a table: [{name}]"
    return f"{path} has an unknown key {name} outside of the tables{_nearest_key('', name)}"


def _nearest_key(table: str, field: str) -> str:
    """Rather the same name in another table than another name in the same table."""
    if field in FIELDS:
        return f"; did you mean {FIELDS[field][1]}.{field}?"
    near = get_close_matches(field, [known for known in FIELDS if FIELDS[known][1] == table], n=1)
    near = near or get_close_matches(field, FIELDS, n=1)
    return f"; did you mean {FIELDS[near[0]][1]}.{near[0]}?" if near else ""


def _nearest(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


# --- the environment -------------------------------------------------------------------------------------------


def _variable(name: str, value: str) -> _Given:
    return _Given(name, value.strip(), is_text=True)


def _meaningless(environment: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(environment):
        if name in WITHOUT_MEANING:
            type, why = WITHOUT_MEANING[name]
            _convert(type, _variable(name, environment[name]))
            yield f"{name} has no meaning here because {why}"
        elif name.startswith(PREFIXES) and name not in VARIABLES:
            yield f"{name} is not a setting and has no effect{_nearest(name, list(VARIABLES))}"


# --- values ----------------------------------------------------------------------------------------------------


def _split_host(given: dict[str, _Given]) -> list[str]:
    """Let a host that brings its port along set both; a warning if that overrules a port of the same source."""
    host, port = given.get("host"), given.get("port")
    if host is None or not isinstance(host.value, str):
        return []
    name, own_port = _host_and_port(host.source, host.value)
    given["host"] = _Given(host.source, name)
    if own_port is None:
        return []
    given["port"] = _Given(host.source, own_port, is_text=True)
    if port is None or _convert(Port, port) == _convert(Port, given["port"]):
        return []
    return [f"{port.source} has no effect because {host.source} says port {own_port}"]


def _host_and_port(source: str, text: str) -> tuple[str, str | None]:
    """``host``, ``host:port``, ``::1``, ``[::1]`` or ``[::1]:port``."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if closed and _is_address(host) and (not rest or rest.startswith(":")):
            return host, rest[1:] if rest else None
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
        if host:
            return host, port
    elif ":" not in text or _is_address(text):
        return text, None
    raise BadSettings(f"{source} is {text!r}; expected {_expected(Host)}")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _convert(type: Any, given: _Given) -> Any:
    """The value as its type, or an error that says what is expected at its source."""
    if type is Keys:
        return _keys(given.source, given.value)
    value = given.value
    if type in (Texts, Origins, Hosts, Networks) and isinstance(value, str):
        value = [text.strip() for text in value.split(",") if text.strip()]
    try:
        return msgspec.convert(value, type, strict=not given.is_text)
    except msgspec.ValidationError:
        raise BadSettings(f"{given.source} is {given.value!r}; expected {_expected(type)}") from None


def _expected(type: Any) -> str:
    meta: msgspec.Meta = get_args(type)[1]
    assert meta.description is not None
    return meta.description


def _keys(source: str, value: object) -> Keys:
    """Never quotes the value."""
    try:
        entries = [value] if isinstance(value, str) else msgspec.convert(value, list[str])
    except msgspec.ValidationError:
        raise BadSettings(f"{source}: expected text or a list of texts, each like key:scopes:prefixes") from None
    try:
        return Keys.parse(",".join(entries))
    except BadKeys as error:
        raise BadSettings(f"{source}: {error}") from None
