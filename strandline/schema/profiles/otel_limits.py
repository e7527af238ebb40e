"""The settings of a trace stream: how much of a span is stored, and how much of a request is read; and applying them to
attributes.

Attributes of spans, resources, scopes, events and links are redacted and cut to the limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from strandline.schema.errors import SchemaError
from strandline.schema.options import Count, DeclaredOptions, LowerNames, Name, Names, Positive
from strandline.schema.profiles.values import REDACTED

MAX_DEPTH = 64


class AttributeLimits(DeclaredOptions, frozen=True):
    max_attribute_value_bytes: Positive = 8192
    max_attributes_per_span: Count = 256
    max_events_per_span: Count = 128
    max_links_per_span: Count = 128
    max_statement_bytes: Positive = 4096


class StoreRaw(DeclaredOptions, frozen=True):
    """Which parts of a span are stored in addition to the derived fields."""

    resource_attributes: bool = field(name="rawResourceAttributes", default=True)
    span_attributes: bool = field(name="rawSpanAttributes", default=True)
    events: bool = field(name="rawEvents", default=True)
    links: bool = field(name="rawLinks", default=True)


class OtlpLimits(DeclaredOptions, frozen=True):
    """The maximum size of a request and of the values in it."""

    max_compressed_bytes: Positive = 4 << 20
    max_decoded_bytes: Positive = 16 << 20
    max_resource_spans_per_request: Positive = 1024
    max_scope_spans_per_request: Positive = 4096
    max_spans_per_request: Positive = 50_000
    max_any_value_depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 16
    max_array_values_per_any_value: Count = 256
    max_kv_list_values_per_any_value: Count = 256


class SpansRequest(DeclaredOptions, frozen=True):
    events_stream: Name | UnsetType = UNSET


class SpansObservability(DeclaredOptions, frozen=True):
    request: SpansRequest = SpansRequest()


class OtelTracesProfile(DeclaredOptions, frozen=True, tag_field="kind", tag="otel-traces"):
    """Spans of OpenTelemetry."""

    redact_keys: LowerNames = ()
    #: The attributes with the id of a request; empty: the usual ones.
    request_id_attributes: Names = ()
    attribute_limits: AttributeLimits = AttributeLimits()
    store: StoreRaw = StoreRaw()
    db_statement_mode: Literal["drop", "raw"] = "drop"
    url_mode: Literal["drop_query", "raw"] = "drop_query"
    otlp_limits: OtlpLimits = OtlpLimits()
    observability: SpansObservability = SpansObservability()


#: Names whose values are never stored, in lower case.
SECRETS = frozenset(
    {"password", "token", "secret", "authorization", "cookie", "apikey", "api_key", "set-cookie", "x-api-key"}
)
#: The maximum number of words at the end of a name that are compared with the secret names.
MAX_WORDS = 4
#: The number of cached names. Programs use few names, and repeat them.
REMEMBERED_NAMES = 4096

STATEMENTS = frozenset({"db.statement", "db.query.text"})
_URLS = frozenset({"url.full", "http.url", "http.target", "url.original"})
_QUERY = "url.query"
_WORDS = re.compile("[._-]+")


def secret_names(more: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a name is secret: as a whole, from one of its dots on, or by its last words,
    however they are joined."""
    secrets = SECRETS.union(more)

    @lru_cache(REMEMBERED_NAMES)
    def is_secret(name: str) -> bool:
        name = name.lower()
        rest, dot = name, "."
        while dot:
            if rest in secrets:
                return True
            _, dot, rest = rest.partition(".")
        return _ends_secret(name, secrets)

    return is_secret


def _ends_secret(name: str, secrets: frozenset[str]) -> bool:
    words = [word for word in _WORDS.split(name) if word]
    for count in range(1, min(MAX_WORDS, len(words)) + 1):
        last = words[-count:]
        if any(joint.join(last) in secrets for joint in (".", "-", "_", "")):
            return True
    return False


def without_query(url: str) -> str:
    """Return a URL without query, fragment and credentials."""
    url = url.partition("#")[0].partition("?")[0]
    scheme, separator, rest = url.partition("://")
    if not separator or "@" not in rest:
        return url
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def shorten(text: str, most: int) -> str:
    """Shorten a text to a number of bytes, in whole characters."""
    if len(text) * 4 <= most or len(data := text.encode()) <= most:
        return text
    return data[:most].decode(errors="ignore")


class Attributes:
    """Converts attributes to their stored form. One object per profile."""

    def __init__(self, settings: OtelTracesProfile) -> None:
        self._limits = settings.attribute_limits
        self._keeps_statements = settings.db_statement_mode == "raw"
        self._keeps_queries = settings.url_mode == "raw"
        self._is_secret = secret_names(settings.redact_keys)

    def clean(self, given: Any, path: str, redacted: list[str]) -> tuple[dict[str, Any], int]:
        """Return the attributes, and the number of dropped ones. The paths of secrets are added to ``redacted``."""
        if given is None:
            return {}, 0
        if type(given) is not dict:
            raise SchemaError(f"otel-traces record.{path} must be an object")
        cleaned: dict[str, Any] = {}
        most, longest = self._limits.max_attributes_per_span, self._limits.max_attribute_value_bytes
        is_secret = self._is_secret
        dropped = 0
        for name, value in given.items():
            if len(cleaned) >= most:
                dropped += 1
                continue
            if is_secret(name):
                redacted.append(f"{path}.{name}")
                value = REDACTED
            elif name in _POLICED:
                value = self._policed(name, value)
                if value is None:
                    continue
            elif type(value) is str:
                if len(value) * 4 > longest:
                    value = shorten(value, longest)
            elif type(value) is dict or type(value) is list:
                value = self._inner(value, f"{path}.{name}", redacted)
            cleaned[name] = value
        return cleaned, dropped

    def _policed(self, name: str, value: Any) -> Any:
        """Return the storable part of a statement or a URL; None if nothing may be stored."""
        if type(value) is not str:
            return None
        if name in STATEMENTS:
            return self.statement(value)
        return None if name == _QUERY and not self._keeps_queries else self.url(value)

    def statement(self, text: str) -> str | None:
        return shorten(text, self._limits.max_statement_bytes) if self._keeps_statements else None

    def url(self, text: str) -> str | None:
        return self.text(text if self._keeps_queries else without_query(text))

    def text(self, text: str) -> str | None:
        """Return a trimmed and shortened text; None if it is empty."""
        return shorten(text, self._limits.max_attribute_value_bytes).strip() or None

    def _inner(self, value: Any, path: str, redacted: list[str]) -> Any:
        if type(value) is dict:
            cleaned = {}
            for name, inner in value.items():
                where = f"{path}.{name}"
                if self._is_secret(name):
                    redacted.append(where)
                    cleaned[name] = REDACTED
                else:
                    cleaned[name] = self._inner(inner, where, redacted)
            return cleaned
        if type(value) is list:
            return [self._inner(inner, f"{path}.{index}", redacted) for index, inner in enumerate(value)]
        return shorten(value, self._limits.max_attribute_value_bytes) if type(value) is str else value


_POLICED = STATEMENTS | _URLS | {_QUERY}
