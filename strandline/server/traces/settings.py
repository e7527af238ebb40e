"""The settings of traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from msgspec import Meta

from strandline.setting import Milliseconds, Section, Text, Texts

Sampler = Annotated[
    Literal[
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    ],
    Meta(
        description="always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or "
        "parentbased_traceidratio"
    ),
]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

#: The path of a collector's URL, unless the URL has one.
PATH = "/v1/traces"


class TracesSettings(Section, frozen=True, kw_only=True):
    """Traces of the server's requests, which it sends to an OpenTelemetry collector."""

    traces_endpoint: Annotated[
        Text,
        "URL of a collector for spans, OTLP over HTTP: http://collector:4318, with the path /v1/traces unless it has "
        "another; empty: no traces.",
    ] = ""
    traces_headers: Annotated[
        Texts, "Headers of requests to the collector, such as its API key: name=value, with percent-encoded values."
    ] = ()
    traces_service: Annotated[Text, "Name of this server in traces."] = "strandline"
    traces_resource: Annotated[
        Texts, "Further attributes of this server in traces: name=value, with percent-encoded values."
    ] = ()
    traces_sampler: Annotated[
        Sampler,
        "Which requests are traced: all, none or a share; with parentbased_, a request with a traceparent is traced if "
        "its caller records the trace.",
    ] = "parentbased_traceidratio"
    traces_ratio: Annotated[Share, "Share of traces, for the samplers with traceidratio."] = 1.0
    traces_delay_ms: Annotated[
        Milliseconds, "Maximum time that the spans of ended requests wait for others, to be sent together."
    ] = 5000


class Pair(NamedTuple):
    name: str
    value: str


def pairs(texts: tuple[str, ...]) -> Iterator[Pair]:
    """The parts of texts like name=value. Raises ValueError, without the text, which may be a secret."""
    for number, text in enumerate(texts, 1):
        name, equals, value = text.partition("=")
        name, value = unquote(name.strip()), unquote(value.strip())
        if not name or not equals:
            raise ValueError(f"part {number} is not of the form name=value")
        yield Pair(name, value)


def headers_of(texts: tuple[str, ...]) -> dict[str, str]:
    """The headers in texts like name=value. Raises ValueError, without the text."""
    headers: dict[str, str] = {}
    for number, (name, value) in enumerate(pairs(texts), 1):
        if _HEADER_NAME.fullmatch(name) is None:
            raise ValueError(f"part {number} does not begin with the name of a header")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the value in part {number} has characters that a header cannot have")
        headers[name.lower()] = value
    return headers


def url_of(endpoint: str) -> str:
    """The URL that spans are sent to. Raises ValueError."""
    parts = urlsplit(endpoint)
    if parts.username is not None:
        raise ValueError("credentials belong in traces_headers: authorization=Basic%20...")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://HOST:PORT or https://HOST:PORT, the address of a collector")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("expected a port from 0 to 65535") from None
    return endpoint if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{PATH}"
