"""The members of a search configuration as JSON. ``config_parser.py`` parses it and checks its rules."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.query.config import Kind


class _Declaration(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class BindingDeclaration(_Declaration):
    version: Annotated[int, Meta(ge=1)]
    json_pointer: str


class FieldDeclaration(_Declaration):
    kind: Kind
    bindings: Annotated[list[BindingDeclaration], Meta(min_length=1)]
    normalizer: Literal["identity_v1", "lowercase_v1"] | UnsetType = UNSET
    analyzer: Literal["unicode_word_v1"] | UnsetType = UNSET
    exact: bool | UnsetType = UNSET
    prefix: bool | UnsetType = UNSET
    column: bool | UnsetType = UNSET
    exists: bool | UnsetType = UNSET
    sortable: bool | UnsetType = UNSET
    aggregatable: bool | UnsetType = UNSET
    contains: bool | UnsetType = UNSET
    positions: bool | UnsetType = UNSET


class DefaultFieldDeclaration(_Declaration):
    field: str
    boost: Annotated[float, Meta(gt=0)] | UnsetType = UNSET


class CountMeasure(_Declaration, tag_field="kind", tag="count"):
    include: str | UnsetType = UNSET


class SummaryMeasure(_Declaration, tag_field="kind", tag="summary"):
    field: str
    histogram: Literal["log2_v1"] | UnsetType = UNSET


class SummaryPartsMeasure(_Declaration, tag_field="kind", tag="summary_parts"):
    count_json_pointer: str
    sum_json_pointer: str
    min_json_pointer: str
    max_json_pointer: str
    histogram_json_pointer: str | UnsetType = UNSET


class RollupDeclaration(_Declaration, kw_only=True):
    timestamp_field: str | UnsetType = UNSET
    include: str | UnsetType = UNSET
    dimensions: list[str] | UnsetType = UNSET
    intervals: Annotated[list[str], Meta(min_length=1)]
    measures: Annotated[dict[str, CountMeasure | SummaryMeasure | SummaryPartsMeasure], Meta(min_length=1)]


class SearchDeclaration(_Declaration, kw_only=True):
    profile: str | UnsetType = UNSET
    primary_timestamp_field: str | UnsetType = UNSET
    aliases: dict[str, str] | UnsetType = UNSET
    default_fields: list[DefaultFieldDeclaration] | UnsetType = UNSET
    contains_default_fields: list[str] | UnsetType = UNSET
    fields: Annotated[dict[str, FieldDeclaration], Meta(min_length=1)]
    rollups: dict[str, RollupDeclaration] | UnsetType = UNSET
