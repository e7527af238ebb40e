"""Reads settings from a TOML file, then from environment variables, then from options of the command line.

A later source overrides an earlier one. The error for an unknown name suggests the nearest valid one. Each value is
checked with its source, so the message names the file, variable or option to change.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from strandline.nearest_name import did_you_mean, nearest_name
from strandline.server.settings import (
    OPTIONS,
    OTHER_NAMES,
    PREFIX,
    SECTION_OF,
    SECTIONS,
    SETTINGS,
    TOPICS_VARIABLES,
    VARIABLES,
    BadSettings,
    Host,
    Port,
    Settings,
    check,
    variable_of,
)
from strandline.server.traces import opentelemetry
from strandline.service.access import BadKeys, Keys
from strandline.setting import Count, Positive, Text, expected

#: The prefix of variables in the published documents of the topics protocol.
TOPICS_PREFIX = "TOPICS_"
#: Former names of variables, and their current names. A former name is an error, because its value would be ignored.
#: Other programs use the same prefixes, so only the names in this table are errors.
FORMER_VARIABLES: dict[str, str] = {
    f"{section.upper()}_{name.removeprefix('stream_').upper()}": variable_of(name, section)
    for name, section in (*SECTION_OF.items(), *((name, section) for section, name in OTHER_NAMES))
    if section in ("streams", "collections")
}

#: Variables that are not settings of a server, and their users.
OTHER_VARIABLES: dict[str, str] = {
    "STRANDLINE_URL": "the command line: the server to talk to",
    "STRANDLINE_KEY": "the command line: the API key to send",
    "STRANDLINE_QUEUE": "commands that `queue work` runs: the name of the queue",
    "STRANDLINE_SEQ": "commands that `queue work` runs: the sequence number of the job",
    "STRANDLINE_RECORD_KEY": "commands that `queue work` runs: the key of the job",
    "STRANDLINE_DELIVERIES": "commands that `queue work` runs: the number of deliveries of the job",
    "STRANDLINE_LONG": "the tests of Strandline: 1 runs them at full length",
}

#: Kubernetes sets these variables in every container for a service with the name strandline or topics.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

#: The tables of the section ``collections`` that configure collections; the others are settings.
COLLECTION_TABLES = ("collection", "namespace", "rate_limit")

#: Variables in the documents of the topics protocol that have no effect in Strandline, and the reason.
WITHOUT_EFFECT: dict[str, tuple[Any, str]] = {
    "TOPICS_WAL_SHARDS": (Positive, "there is one journal for all logs, and its writers share their flushes"),
    "TOPICS_SEGMENT_MAX_EVENTS": (
        Positive,
        "the size of a journal file in bytes (STRANDLINE_JOURNAL_BYTES) decides when it is sealed",
    ),
    "TOPICS_SEGMENT_MAX_AGE_MS": (
        Count,
        "the size of a journal file in bytes (STRANDLINE_JOURNAL_BYTES) decides when it is sealed",
    ),
    "TOPICS_TEST_EXHAUSTIVE": (Text, "it is a setting of tests, not of a server"),
    "TOPICS_TEST_SAMPLE": (Text, "it is a setting of tests, not of a server"),
}


class _Given(NamedTuple):
    """A value and its source. Values of variables are text; other values have the type of their source."""

    source: str
    value: object
    is_text: bool = False


#: The values of one source, in rising order of precedence.
_Values = list[tuple[str, _Given]]


def load(
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> Settings:
    """Load the settings: defaults, then the file, then variables, then options by their names in ``OPTIONS``."""
    document = {} if config is None else _parse(config)
    collections = _collection_tables(document)
    for_all_programs = environment or {}
    environment = _own_variables(environment or {})
    warnings = list(_without_effect(environment))
    chosen: dict[str, Any] = {}
    for given in (
        [] if config is None else list(_from_file(config, document)),
        list(_from_opentelemetry(for_all_programs, _has_endpoint(document, environment))),
        list(_from_environment(environment)),
        [(OPTIONS[name], _Given(name, value)) for name, value in (options or {}).items()],
    ):
        given, overruled = _split_host(given)
        chosen |= _values(given, warnings)
        warnings += overruled
    sections = {
        name: section(**{setting: value for setting, value in chosen.items() if SECTION_OF[setting] == name})
        for name, section in SECTIONS.items()
    }
    settings = Settings(**sections, collection_tables=collections)  # type: ignore[arg-type]  # each is of its type
    check(settings)
    warnings += settings.collections_config().warnings
    return msgspec.structs.replace(settings, warnings=tuple(warnings))


def _values(given: _Values, warnings: list[str]) -> dict[str, Any]:
    """The values of one source by setting. If several names set the maximum number of logs, the smallest counts."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting, one in given:
        value = _convert(SETTINGS[setting].type, one)
        if setting not in values:
            values[setting], sources[setting] = value, one.source
        elif setting in OTHER_NAMES.values():
            values[setting] = min(filter(None, (values[setting], value)), default=0)
        elif value != values[setting]:
            warnings.append(f"{sources[setting]} has no effect because {one.source} is set")
            values[setting], sources[setting] = value, one.source
    return values


# --- the file --------------------------------------------------------------------------------------------------


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not a TOML file: {error}") from None


def _collection_tables(document: dict[str, Any]) -> dict[str, Any]:
    """Remove the tables that configure collections from a document, and return them."""
    section = document.get("collections")
    if not isinstance(section, dict):
        return {}
    return {name: section.pop(name) for name in COLLECTION_TABLES if name in section}


def _from_file(path: Path, document: dict[str, Any]) -> Iterator[tuple[str, _Given]]:
    for section, values in document.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise BadSettings(_unknown_section(path, section, values))
        for name, value in values.items():
            setting = OTHER_NAMES.get((section, name)) or str(name)
            if setting == name and SECTION_OF.get(name) != section:
                raise BadSettings(f"{path}: unknown setting '{section}.{name}'{_nearest_setting(section, name)}")
            yield setting, _Given(f"{section}.{name} in {path}", value)


def _unknown_section(path: Path, name: str, values: object) -> str:
    if isinstance(values, dict):
        return f"{path}: unknown section '[{name}]'{did_you_mean(f'[{name}]', [f'[{one}]' for one in SECTIONS])}"
    if name in SECTIONS:
        return f"{path}: {name} must be a table; write [{name}]"
    return f"{path}: unknown setting '{name}' outside of the sections{_nearest_setting('', name)}"


def _nearest_setting(section: str, name: str) -> str:
    """The same name in another section, or else a similar name, preferably in the same section."""
    sections = {**SECTION_OF, **{other: of for of, other in OTHER_NAMES}}
    own = [one for one, of in sections.items() if of == section]
    near = name if name in sections else nearest_name(name, own) or nearest_name(name, sections)
    return "" if near is None else f"; did you mean '{sections[near]}.{near}'?"


# --- the environment -------------------------------------------------------------------------------------------


def _own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with a prefix of this server. Raises :class:`BadSettings` for an unknown one."""
    own: dict[str, str] = {}
    for name, value in environment.items():
        if name.startswith((PREFIX, TOPICS_PREFIX)):
            if name in OTHER_VARIABLES or _is_service_link(name, value):
                continue
            if name not in VARIABLES and name not in WITHOUT_EFFECT:
                raise BadSettings(f"unknown setting {name!r}{_nearest_variable(name)}")
            own[name] = value
        elif name in FORMER_VARIABLES:
            raise BadSettings(f"unknown setting {name!r}; did you mean {FORMER_VARIABLES[name]!r}?")
    return own


def _nearest_variable(name: str) -> str:
    """The variable of the same setting, or else a similar name with the same prefix."""
    prefix, _, rest = name.partition("_")
    if rest.lower() in SETTINGS:
        return f"; did you mean {variable_of(rest.lower())!r}?"
    # Without the prefix, which would make all names similar.
    near = nearest_name(rest, [known.partition("_")[2] for known in VARIABLES if known.startswith(f"{prefix}_")])
    return "" if near is None else f"; did you mean '{prefix}_{near}'?"


def _is_service_link(name: str, value: str) -> bool:
    if _SERVICE_LINK.search(name) is not None and name not in VARIABLES:
        return True
    return name.endswith("_PORT") and _SERVICE_ADDRESS.match(value) is not None


def _without_effect(environment: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(environment.keys() & WITHOUT_EFFECT.keys()):
        type, why = WITHOUT_EFFECT[name]
        _convert(type, _variable(name, environment[name]))
        yield f"{name} has no effect because {why}"


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, _Given]]:
    """The values of variables. Names of the topics protocol come first, so that Strandline's own name overrides
    them."""
    for name in sorted(environment, key=lambda name: (name not in TOPICS_VARIABLES, name)):
        if name in VARIABLES:
            yield VARIABLES[name], _variable(name, environment[name])


def _has_endpoint(document: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether the file or a variable of Strandline names a collector for traces."""
    section = document.get("traces")
    in_file = isinstance(section, dict) and bool(section.get("traces_endpoint"))
    return in_file or bool(environment.get(variable_of("traces_endpoint"), "").strip())


def _from_opentelemetry(environment: Mapping[str, str], has_endpoint: bool) -> Iterator[tuple[str, _Given]]:
    """The values of the variables that OpenTelemetry defines for all programs."""
    try:
        for name, value in opentelemetry.values(environment, has_endpoint):
            yield opentelemetry.VARIABLES[name], _variable(name, value)
    except ValueError as error:
        raise BadSettings(str(error)) from None


def _variable(name: str, value: str) -> _Given:
    return _Given(name, value.strip(), is_text=True)


# --- values ----------------------------------------------------------------------------------------------------


def _split_host(given: _Values) -> tuple[_Values, list[str]]:
    """Split a host with a port into two settings. Returns a warning if that port overrides another one of the same
    source."""
    split: _Values = []
    ports: dict[str, _Given] = {}
    for setting, one in given:
        if setting == "host" and isinstance(one.value, str):
            name, port = _host_and_port(one.source, one.value)
            split.append((setting, _Given(one.source, name)))
            if port is not None:
                ports[one.source] = _Given(one.source, port, is_text=True)
        else:
            split.append((setting, one))
    if not ports:
        return split, []
    source, port_given = ports.popitem()
    others = [one for setting, one in split if setting == "port" and _convert(Port, one) != _convert(Port, port_given)]
    split = [(setting, one) for setting, one in split if setting != "port"] + [("port", port_given)]
    return split, [f"{one.source} has no effect because {source} sets port {port_given.value}" for one in others]


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
    raise BadSettings(f"{source} is {text!r}; expected {expected(Host)}")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _convert(type: Any, given: _Given) -> Any:
    """Convert the value to the type. Raises :class:`BadSettings` with the source and the expected form."""
    plain = get_args(type)[0]
    if plain is Keys:
        return _keys(given.source, given.value)
    value = given.value
    if get_origin(plain) is tuple and isinstance(value, str):
        value = [text.strip() for text in value.split(",") if text.strip()]
    try:
        return msgspec.convert(value, type, strict=not given.is_text)
    except msgspec.ValidationError:
        raise BadSettings(f"{given.source} is {given.value!r}; expected {expected(type)}") from None


def _keys(source: str, value: object) -> Keys:
    """Parse API keys. Error messages never quote the value."""
    try:
        entries = [value] if isinstance(value, str) else msgspec.convert(value, list[str])
    except msgspec.ValidationError:
        raise BadSettings(
            f"{source}: expected text or a list of texts, each of the form secret:scopes:prefixes"
        ) from None
    try:
        return Keys.parse(",".join(entries))
    except BadKeys as error:
        raise BadSettings(f"{source}: {error}") from None
