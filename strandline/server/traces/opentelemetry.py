"""The environment variables that OpenTelemetry defines for all programs, and the settings that they set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strandline.server.traces.settings import PATH

#: The variables that OpenTelemetry defines, and the setting of each. A later one overrides an earlier one.
VARIABLES: dict[str, str] = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "traces_endpoint",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "traces_endpoint",
    "OTEL_EXPORTER_OTLP_HEADERS": "traces_headers",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "traces_headers",
    "OTEL_RESOURCE_ATTRIBUTES": "traces_resource",
    "OTEL_SERVICE_NAME": "traces_service",
    "OTEL_TRACES_SAMPLER": "traces_sampler",
    "OTEL_TRACES_SAMPLER_ARG": "traces_ratio",
    "OTEL_BSP_SCHEDULE_DELAY": "traces_delay_ms",
}
#: The addresses for all signals, and for traces.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
#: The variables that name the form of requests. Strandline sends only PROTOCOL.
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether the variables of OpenTelemetry say that there are no traces."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def values(environment: Mapping[str, str], has_endpoint: bool) -> Iterator[tuple[str, str]]:
    """The variables of OpenTelemetry with a value, and their values as the settings have them.

    ``has_endpoint``: another source names the collector. Without a collector the variables have no effect, whatever
    their values are, because platforms set them for all programs. An empty variable counts as unset, as OpenTelemetry
    prescribes. Raises ValueError.
    """
    found = {name: environment.get(name, "").strip() for name in (*VARIABLES, *PROTOCOLS)}
    names_endpoint = any(found[name] for name in ENDPOINTS)
    if is_disabled(environment) or not (has_endpoint or names_endpoint):
        return
    protocol = next((name for name in PROTOCOLS if found[name]), None)
    if names_endpoint and protocol is not None and found[protocol] != PROTOCOL:
        raise ValueError(
            f"{protocol} is {found[protocol]!r}; expected {PROTOCOL}, the only form in which Strandline sends spans: "
            "set it, with an endpoint that accepts it, or set OTEL_TRACES_EXPORTER=none for no traces"
        )
    for name in VARIABLES:
        value = found[name]
        if name == ENDPOINTS[0] and value:
            # The address for all signals: each has its own path below it.
            value = value.rstrip("/") + PATH
        if value:
            yield name, value
