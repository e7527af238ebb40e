"""Parse a search configuration from a JSON document. The first violated rule is reported with its location."""

from __future__ import annotations

import re
from typing import Any, cast, get_args

from msgspec import Struct, UnsetType, structs

from strandline.nearest_name import did_you_mean, member_names
from strandline.query.bound import bind_search
from strandline.query.config import (
    Binding,
    DefaultField,
    Field,
    Kind,
    Measure,
    MeasureKind,
    Rollup,
    SearchConfig,
)
from strandline.query.declaration import (
    BindingDeclaration,
    CountMeasure,
    DefaultFieldDeclaration,
    FieldDeclaration,
    RollupDeclaration,
    SearchDeclaration,
    SummaryMeasure,
    SummaryPartsMeasure,
)
from strandline.query.errors import BadPointer, BadQuery, BadSearchConfig
from strandline.query.language import Node, parse
from strandline.query.pointers import parse_pointer

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}\Z")
DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)\Z")
MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: A century. A wider interval is a mistake, and must not overflow a date.
LONGEST_INTERVAL = 36_525 * MILLISECONDS["d"]
#: The largest integer that every JSON reader preserves exactly.
MAX_SAFE_INTEGER = 2**53 - 1

#: A search extracts all fields of the records that it indexes itself. With more fields it would miss its deadline.
MAX_FIELDS = 500

FLAGS = tuple(field.name for field in structs.fields(FieldDeclaration) if field.type == bool | UnsetType)
PARTS = tuple(field.encode_name for field in structs.fields(SummaryPartsMeasure) if field.required)
HISTOGRAM_PART = "histogramJsonPointer"
TYPED = ("integer", "float", "date", "bool")
REFUSED_FLAGS: dict[object, tuple[str, ...]] = {
    "text": ("column", "sortable", "aggregatable"),
    "typed": ("prefix", "contains"),
}


def parse_search_config(document: object, path: str = "search") -> SearchConfig:
    """Return the configuration that ``document`` declares. ``path`` is its name in messages. Raises BadSearchConfig."""
    declared = expect_object(document, path)
    expect_members(declared, path, SearchDeclaration)
    fields = read_fields(declared.get("fields"), f"{path}.fields")
    config = SearchConfig(
        fields=fields,
        aliases=read_aliases(declared.get("aliases", {}), f"{path}.aliases", fields),
        default_fields=read_default_fields(declared.get("defaultFields", []), f"{path}.defaultFields", fields),
        contains_default_fields=read_references(
            declared.get("containsDefaultFields", []), f"{path}.containsDefaultFields", fields
        ),
        primary_timestamp=read_timestamp_field(declared, "primaryTimestampField", path, fields),
        profile=read_profile(declared, path),
    )
    rollups = read_rollups(declared.get("rollups", {}), f"{path}.rollups", config)
    return structs.replace(config, rollups=rollups, declared=tidied(declared))


def read_profile(declared: dict[str, Any], path: str) -> str | None:
    profile = declared.get("profile")
    if "profile" in declared and not (isinstance(profile, str) and profile.strip()):
        raise BadSearchConfig(f"{path}.profile must be a non-empty string")
    return profile


def read_fields(value: object, path: str) -> dict[str, Field]:
    if not isinstance(value, dict) or not value:
        raise BadSearchConfig(f"{path} must be a non-empty object")
    if len(value) > MAX_FIELDS:
        raise BadSearchConfig(f"{path} has {len(value)} fields; at most {MAX_FIELDS} are allowed")
    return {name: read_field(name, declared, f"{path}.{name}") for name, declared in named(value, path)}


def read_field(name: str, value: object, path: str) -> Field:
    declared = expect_object(value, path)
    expect_members(declared, path, FieldDeclaration)
    kind = declared.get("kind")
    if kind not in get_args(Kind):
        raise BadSearchConfig(f"{path}.kind must be keyword, text, integer, float, date, or bool")
    for flag in FLAGS:
        if not isinstance(declared.get(flag, False), bool):
            raise BadSearchConfig(f"{path}.{flag} must be boolean")
    check_words(declared, kind, path)
    check_flags(declared, kind, path)
    return Field(
        name=name,
        kind=cast(Kind, kind),
        bindings=read_bindings(declared.get("bindings"), f"{path}.bindings"),
        normalizer=declared.get("normalizer"),
        analyzer=declared.get("analyzer"),
        **{flag: declared.get(flag, False) for flag in FLAGS},
    )


def check_words(declared: dict[str, Any], kind: object, path: str) -> None:
    """Check that a normalizer is only given for keywords, and an analyzer only for texts."""
    if "normalizer" in declared:
        if kind != "keyword":
            raise BadSearchConfig(f"{path}.normalizer is only supported for keyword fields")
        if declared["normalizer"] not in ("identity_v1", "lowercase_v1"):
            raise BadSearchConfig(f"{path}.normalizer must be identity_v1 or lowercase_v1")
    if "analyzer" in declared:
        if kind != "text":
            raise BadSearchConfig(f"{path}.analyzer is only supported for text fields")
        if declared["analyzer"] != "unicode_word_v1":
            raise BadSearchConfig(f"{path}.analyzer must be unicode_word_v1")
    elif kind == "text":
        raise BadSearchConfig(f"{path}.analyzer is required for text fields")


def check_flags(declared: dict[str, Any], kind: object, path: str) -> None:
    group = "typed" if kind in TYPED else kind
    for flag in REFUSED_FLAGS.get(group, ()):
        if declared.get(flag):
            raise BadSearchConfig(f"{path}.{flag} is not supported for {group} fields")
    if declared.get("positions") and kind != "text":
        raise BadSearchConfig(f"{path}.positions is only supported for text fields")


def read_bindings(value: object, path: str) -> tuple[Binding, ...]:
    if not isinstance(value, list) or not value:
        raise BadSearchConfig(f"{path} must be a non-empty array")
    bindings: dict[int, Binding] = {}
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        declared = expect_object(item, here)
        expect_members(declared, here, BindingDeclaration)
        version = declared.get("version")
        if version.__class__ is not int or not 1 <= version <= MAX_SAFE_INTEGER:
            raise BadSearchConfig(f"{here}.version must be a positive integer")
        if version in bindings:
            raise BadSearchConfig(f"{here}.version duplicates {version}")
        bindings[version] = Binding(version, read_pointer(declared, "jsonPointer", here))
    return tuple(bindings[version] for version in sorted(bindings))


def read_pointer(declared: dict[str, Any], key: str, path: str) -> str:
    pointer = declared.get(key)
    if not isinstance(pointer, str):
        raise BadSearchConfig(f"{path}.{key} must be a string")
    try:
        parse_pointer(pointer)
    except BadPointer:
        raise BadSearchConfig(f"{path}.{key} must be a valid JSON pointer") from None
    return pointer


def read_aliases(value: object, path: str, fields: dict[str, Field]) -> dict[str, str]:
    aliases = {
        alias: read_reference(target, f"{path}.{alias}", fields)
        for alias, target in named(expect_object(value, path), path)
    }
    for alias in aliases:
        if alias in fields:
            raise BadSearchConfig(f"{path}.{alias} must not be the name of a declared field")
    return aliases


def read_default_fields(value: object, path: str, fields: dict[str, Field]) -> tuple[DefaultField, ...]:
    if not isinstance(value, list):
        raise BadSearchConfig(f"{path} must be an array")
    defaults: dict[str, DefaultField] = {}
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        declared = expect_object(item, here)
        expect_members(declared, here, DefaultFieldDeclaration)
        name = read_reference(declared.get("field"), f"{here}.field", fields)
        if name in defaults:
            raise BadSearchConfig(f"{here}.field duplicates {name}")
        boost = declared.get("boost", 1)
        if boost.__class__ not in (int, float) or not 0 < boost <= MAX_SAFE_INTEGER:
            raise BadSearchConfig(f"{here}.boost must be a positive number")
        defaults[name] = DefaultField(name, float(boost))
    return tuple(defaults.values())


def read_references(value: object, path: str, fields: dict[str, Field]) -> tuple[str, ...]:
    """Read an array of names of declared fields without duplicates."""
    if not isinstance(value, list):
        raise BadSearchConfig(f"{path} must be an array of field names")
    names: dict[str, None] = {}
    for index, item in enumerate(value):
        name = read_reference(item, f"{path}[{index}]", fields)
        if name in names:
            raise BadSearchConfig(f"{path}[{index}] duplicates {name}")
        names[name] = None
    return tuple(names)


def read_reference(value: object, path: str, fields: dict[str, Field]) -> str:
    name = value.strip() if isinstance(value, str) else None
    if name is None or name not in fields:
        raise BadSearchConfig(f"{path} must reference a declared field")
    return name


def read_timestamp_field(declared: dict[str, Any], key: str, path: str, fields: dict[str, Field]) -> str | None:
    if key not in declared:
        return None
    name = read_reference(declared[key], f"{path}.{key}", fields)
    if fields[name].kind != "date":
        raise BadSearchConfig(f"{path}.{key} must reference a date field")
    return name


def read_rollups(value: object, path: str, config: SearchConfig) -> dict[str, Rollup]:
    return {
        name: read_rollup(name, declared, f"{path}.{name}", config)
        for name, declared in named(expect_object(value, path), path)
    }


def read_rollup(name: str, value: object, path: str, config: SearchConfig) -> Rollup:
    declared = expect_object(value, path)
    expect_members(declared, path, RollupDeclaration)
    timestamp = read_timestamp_field(declared, "timestampField", path, config.fields) or config.primary_timestamp
    if timestamp is None:
        raise BadSearchConfig(f"{path}.timestampField must be set where there is no primaryTimestampField")
    measures = declared.get("measures")
    if not isinstance(measures, dict) or not measures:
        raise BadSearchConfig(f"{path}.measures must be a non-empty object")
    return Rollup(
        name=name,
        timestamp_field=timestamp,
        include=read_include(declared, path, config),
        dimensions=read_dimensions(declared.get("dimensions", []), f"{path}.dimensions", config.fields),
        intervals=read_intervals(declared.get("intervals"), f"{path}.intervals"),
        measures={
            measure: read_measure(measure, of, f"{path}.measures.{measure}", config)
            for measure, of in named(measures, f"{path}.measures")
        },
    )


def read_include(declared: dict[str, Any], path: str, config: SearchConfig) -> Node | None:
    """Read a query and check that it is valid with this configuration now, not only when it is used."""
    if "include" not in declared:
        return None
    include = declared["include"]
    if not isinstance(include, str):
        raise BadSearchConfig(f"{path}.include must be a query string")
    try:
        node = parse(include, "query")
        bind_search(node, config)
    except BadQuery as error:
        raise BadSearchConfig(f"{path}.include must be a valid query: {error}") from None
    return node


def read_dimensions(value: object, path: str, fields: dict[str, Field]) -> tuple[str, ...]:
    dimensions = read_references(value, path, fields)
    for index, name in enumerate(dimensions):
        if not fields[name].exact or fields[name].kind == "text":
            raise BadSearchConfig(f"{path}[{index}] must reference an exact-capable field")
    return dimensions


def read_intervals(value: object, path: str) -> dict[str, int]:
    if not isinstance(value, list) or not value:
        raise BadSearchConfig(f"{path} must be a non-empty array")
    intervals: dict[str, int] = {}
    for index, item in enumerate(value):
        duration = DURATION.match(item) if isinstance(item, str) else None
        milliseconds = int(duration[1]) * MILLISECONDS[duration[2]] if duration else 0
        if not 0 < milliseconds <= LONGEST_INTERVAL:
            raise BadSearchConfig(f"{path}[{index}] must be a positive duration string")
        if item in intervals:
            raise BadSearchConfig(f"{path}[{index}] duplicates {item}")
        intervals[item] = milliseconds
    return intervals


MEASURES: dict[object, type[Struct]] = {
    "count": CountMeasure,
    "summary": SummaryMeasure,
    "summary_parts": SummaryPartsMeasure,
}


def read_measure(name: str, value: object, path: str, config: SearchConfig) -> Measure:
    declared = expect_object(value, path)
    kind = declared.get("kind")
    if kind not in get_args(MeasureKind):
        raise BadSearchConfig(f"{path}.kind must be count, summary, or summary_parts")
    expect_members(declared, path, MEASURES[kind])
    if kind == "count":
        return Measure(name, "count", include=read_include(declared, path, config))
    if kind == "summary":
        return read_summary(name, declared, path, config)
    parts = (*PARTS, HISTOGRAM_PART) if HISTOGRAM_PART in declared else PARTS
    return Measure(name, "summary_parts", pointers=tuple(read_pointer(declared, part, path) for part in parts))


def read_summary(name: str, declared: dict[str, Any], path: str, config: SearchConfig) -> Measure:
    field = declared.get("field")
    found = config.fields.get(field.strip()) if isinstance(field, str) else None
    if found is None or not found.aggregatable or found.kind not in ("integer", "float"):
        raise BadSearchConfig(f"{path}.field must reference an aggregatable search field")
    if declared.get("histogram", "log2_v1") != "log2_v1":
        raise BadSearchConfig(f"{path}.histogram must be log2_v1")
    return Measure(name, "summary", field=found.name, histogram="histogram" in declared)


def named(value: dict[str, Any], path: str) -> list[tuple[str, Any]]:
    """Return the entries of an object whose keys are names, with the names trimmed."""
    entries: dict[str, Any] = {}
    for key, entry in value.items():
        name = key.strip()
        if not NAME.match(name):
            raise BadSearchConfig(
                f"{path}.{key} must be named with 1 to 64 letters, digits, dots, underscores or dashes, "
                "the first a letter or digit"
            )
        if name in entries:
            raise BadSearchConfig(f"{path}.{name} must be declared only once")
        entries[name] = entry
    return list(entries.items())


def expect_object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadSearchConfig(f"{path} must be an object")
    return value


def expect_members(declared: dict[str, Any], path: str, struct: type[Struct]) -> None:
    known = member_names(struct)
    for name in declared:
        if name not in known:
            raise BadSearchConfig(f"{path}.{name} is not supported{did_you_mean(name, known)}")


def tidied(declared: dict[str, Any]) -> dict[str, Any]:
    """Return a checked declaration as it is stored: with trimmed names and references, without flags that are not
    true."""
    shown = dict(declared)
    shown["fields"] = {
        name.strip(): {key: value for key, value in field.items() if value is not False}
        for name, field in declared["fields"].items()
    }
    if "primaryTimestampField" in shown:
        shown["primaryTimestampField"] = shown["primaryTimestampField"].strip()
    if "aliases" in shown:
        shown["aliases"] = {alias.strip(): target.strip() for alias, target in shown["aliases"].items()}
    if "defaultFields" in shown:
        shown["defaultFields"] = [{**default, "field": default["field"].strip()} for default in shown["defaultFields"]]
    if "containsDefaultFields" in shown:
        shown["containsDefaultFields"] = [name.strip() for name in shown["containsDefaultFields"]]
    if "rollups" in shown:
        shown["rollups"] = {name.strip(): tidied_rollup(rollup) for name, rollup in shown["rollups"].items()}
    return shown


def tidied_rollup(declared: dict[str, Any]) -> dict[str, Any]:
    shown = dict(declared)
    if "timestampField" in shown:
        shown["timestampField"] = shown["timestampField"].strip()
    if "dimensions" in shown:
        shown["dimensions"] = [name.strip() for name in shown["dimensions"]]
    shown["measures"] = {
        name.strip(): {**measure, "field": measure["field"].strip()} if "field" in measure else measure
        for name, measure in shown["measures"].items()
    }
    return shown
