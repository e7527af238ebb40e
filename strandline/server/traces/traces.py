"""The traces of one server: its settings, what is traced, and the exporter."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from uuid import uuid4

import strandline
from strandline.server.traces.exporter import Exporter
from strandline.server.traces.sampling import SampledTracer
from strandline.server.traces.settings import TracesSettings, pairs, url_of
from strandline.spans import Value

#: The package with the messages of OTLP, which the extra `server` installs.
PACKAGE = "opentelemetry.proto"


class MissingPackage(Exception):
    """A server with traces needs a package that is not installed."""


class Traces:
    """The traces of a server that sends them. ``start`` begins to send; spans may be recorded before."""

    def __init__(self, settings: TracesSettings) -> None:
        if not _is_installed():
            raise MissingPackage(
                "traces.traces_endpoint needs the package opentelemetry-proto: install strandline[server], or leave "
                "STRANDLINE_TRACES_ENDPOINT and OTEL_EXPORTER_OTLP_ENDPOINT empty for no traces"
            )
        # Imports Protocol Buffers, which servers without traces do not need.
        from strandline.server.traces.otlp import TraceMessages

        url, headers = url_of(settings.traces_endpoint), dict(pairs(settings.traces_headers))
        self.exporter = Exporter(url, headers, TraceMessages(attributes_of(settings)), settings.traces_delay_ms / 1000)
        self.tracer = SampledTracer(settings, self.exporter.collect)


def attributes_of(settings: TracesSettings) -> dict[str, Value]:
    """What a trace says about this server. A name for the service may also be among the further attributes."""
    further = dict(pairs(settings.traces_resource))
    default = TracesSettings().traces_service
    name = settings.traces_service
    if name == default:
        name = further.get("service.name", default)
    return {
        "service.version": strandline.__version__,
        "service.instance.id": str(uuid4()),
        "host.name": socket.gethostname(),
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "strandline",
        "telemetry.sdk.version": strandline.__version__,
        **further,
        "service.name": name,
    }


def _is_installed() -> bool:
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False
