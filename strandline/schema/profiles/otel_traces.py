"""otel-traces: the spans of OpenTelemetry, each in one form, found by trace."""

from __future__ import annotations

from typing import Any

from strandline.schema.errors import SchemaError
from strandline.schema.profiles import otel_registry
from strandline.schema.profiles.evlog import observed
from strandline.schema.profiles.options import Options
from strandline.schema.profiles.otel_settings import OtelSettings, parse_settings
from strandline.schema.profiles.otel_span import Spans
from strandline.schema.profiles.profile import Profile, in_batch
from strandline.schema.registry import Registry


class OtelTraces(Profile):
    """``events_stream`` is where the events of its requests are, if that was said."""

    kind = "otel-traces"
    normalises = True

    def __init__(self, document: dict[str, Any], settings: OtelSettings, events_stream: str | None = None) -> None:
        self.settings = settings
        self.events_stream = events_stream
        self._document = document
        self._spans = Spans(settings)

    def document(self) -> dict[str, Any]:
        return self._document

    @property
    def named_streams(self) -> tuple[str, ...]:
        return () if self.events_stream is None else (self.events_stream,)

    @classmethod
    def parse(cls, options: Options) -> OtelTraces:
        options.allow(
            "kind", "redactKeys", "requestIdAttributes", "attributeLimits", "store", "dbStatementMode", "urlMode",
            "otlpLimits", "observability",
        )  # fmt: skip
        settings = parse_settings(options)
        events_stream = observed(options, "eventsStream")
        return cls({"kind": cls.kind, **options.given}, settings, events_stream)

    def check_install(self, *, is_json: bool, is_empty: bool, current: Profile) -> None:
        super().check_install(is_json=is_json, is_empty=is_empty, current=current)
        if not is_empty and current.kind != self.kind:
            raise SchemaError("otel-traces profile must be installed before appending data")

    def registry(self, stream_name: str) -> Registry:
        return otel_registry.INSTALLED.registry(stream_name)

    def span(self, record: Any) -> dict[str, Any]:
        """The span as it is stored. Raises SchemaError."""
        try:
            return self._spans.canonical(record)
        except RecursionError:
            raise SchemaError("otel-traces record is nested too deeply") from None

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        spans = []
        for index, document in enumerate(documents):
            try:
                spans.append(self.span(document))
            except SchemaError as error:
                raise in_batch(error, index, len(documents)) from None
        return spans

    def keys_of(self, documents: list[Any]) -> list[str | None]:
        return [document["traceId"] for document in documents]
