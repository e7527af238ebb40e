"""The settings of traces, and the variables that OpenTelemetry defines for all programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.server.settings import BadSettings, describe
from strandline.server.settings_sources import load
from strandline.server.traces.settings import TracesSettings, url_of
from strandline.server.traces.traces import Traces, attributes_of

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


def traces(file: Path | None = None, **environment: str) -> TracesSettings:
    return load(file, environment).traces


def test_there_are_no_traces_by_default() -> None:
    assert traces() == TracesSettings()
    assert not TracesSettings().traces_endpoint


def test_the_variables_of_opentelemetry_set_the_settings() -> None:
    assert traces(
        **ENDPOINT,
        OTEL_EXPORTER_OTLP_HEADERS="api-key=a%20b,other=c",
        OTEL_SERVICE_NAME="events",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test, team=a%2Cb",
        OTEL_TRACES_SAMPLER="traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0.25",
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    ) == TracesSettings(
        traces_endpoint="http://collector:4318/v1/traces",
        traces_headers=("api-key=a%20b", "other=c"),
        traces_service="events",
        traces_resource=("deployment.environment.name=test", "team=a%2Cb"),
        traces_sampler="traceidratio",
        traces_ratio=0.25,
        traces_delay_ms=100,
    )


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1/base/"}, "http://c:1/base/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/api/otlp"}, "https://c/api/otlp"),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:2/v1/traces"}, "http://c:2/v1/traces"),
        (ENDPOINT | {"STRANDLINE_TRACES_ENDPOINT": "http://own:1"}, "http://own:1/v1/traces"),
        ({"STRANDLINE_TRACES_ENDPOINT": "http://own:1/"}, "http://own:1/v1/traces"),
        ({"STRANDLINE_TRACES_ENDPOINT": "http://own:1/other"}, "http://own:1/other"),
        (ENDPOINT | {"STRANDLINE_TRACES_ENDPOINT": ""}, ""),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, ""),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""),
        # Without a collector, the variables are those of other programs.
        ({"OTEL_TRACES_SAMPLER": "xray", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ""),
    ],
)
def test_where_spans_are_sent(environment: dict[str, str], url: str) -> None:
    endpoint = load(environment=environment).traces.traces_endpoint
    assert (url_of(endpoint) if endpoint else "") == url


def test_variables_come_after_the_file_and_strandlines_own_last(tmp_path: Path) -> None:
    file = tmp_path / "strandline.toml"
    file.write_text('[traces]\ntraces_endpoint = "http://file:1"\ntraces_service = "file"\ntraces_ratio = 0.5\n')
    found = traces(file, OTEL_SERVICE_NAME="otel", OTEL_TRACES_SAMPLER_ARG="0.25", STRANDLINE_TRACES_SERVICE="own")
    assert (found.traces_endpoint, found.traces_service, found.traces_ratio) == ("http://file:1", "own", 0.25)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"STRANDLINE_TRACES_ENDPOINT": "collector:4318"}, "traces_endpoint: expected http://HOST:PORT"),
        ({"STRANDLINE_TRACES_ENDPOINT": "http://a:s3cret@c"}, "credentials belong in traces_headers"),
        ({"STRANDLINE_TRACES_HEADERS": "a=b,s3cret"}, "traces_headers: part 2 .* expected name=value"),
        (
            {"STRANDLINE_TRACES_HEADERS": "a b=s3cret"},
            "traces_headers: part 1 does not begin with the name of a header",
        ),
        ({"STRANDLINE_TRACES_HEADERS": "a=s3cret%0d%0ab"}, "traces_headers: the value in part 1 has characters"),
        ({"STRANDLINE_TRACES_ENDPOINT": "http://c:99999"}, "traces_endpoint: expected a port"),
        ({"STRANDLINE_TRACES_RESOURCE": "=b"}, "traces_resource: part 1"),
        ({"STRANDLINE_TRACES_RATIO": "2"}, "STRANDLINE_TRACES_RATIO is '2'; expected a number from 0 to 1"),
        (ENDPOINT | {"OTEL_TRACES_SAMPLER": "xray"}, "OTEL_TRACES_SAMPLER is 'xray'; expected always_on, .* or par"),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "PROTOCOL is 'grpc'; expected http/protobuf"),
    ],
)
def test_what_is_not_allowed_is_refused_without_showing_a_secret(environment: dict[str, str], message: str) -> None:
    with pytest.raises(BadSettings, match=message) as caught:
        load(environment=environment)
    assert "s3cret" not in str(caught.value)


def test_headers_are_not_printed() -> None:
    environment = ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=s3cret"}
    text = describe(load(environment=environment))
    assert "s3cret" not in text
    assert "# traces_headers is not shown" in text


def test_what_a_trace_says_about_the_server() -> None:
    settings = TracesSettings(traces_resource=("service.name=named", "team=a%2Cb", "host.name=h"))
    assert {"service.name": "named", "team": "a,b", "host.name": "h"}.items() <= attributes_of(settings).items()
    named = TracesSettings(traces_resource=("service.name=named",), traces_service="events")
    assert attributes_of(named)["service.name"] == "events"
    assert attributes_of(TracesSettings())["service.name"] == "strandline"


def test_the_headers_of_requests_are_decoded() -> None:
    settings = TracesSettings(traces_endpoint="http://c", traces_headers=("authorization=Basic%20YTpi",))
    assert Traces(settings).exporter._headers["authorization"] == "Basic YTpi"
