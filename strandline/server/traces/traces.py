"""The traces of one server: its settings, what is traced, and the exporter."""

from __future__ import annotations

import socket
from uuid import uuid4

import strandline
from strandline.server.traces.exporter import Exporter
from strandline.server.traces.otlp import TraceMessages
from strandline.server.traces.sampling import SampledTracer
from strandline.server.traces.settings import TracesSettings, headers_of, pairs, url_of
from strandline.spans import Value


class Traces:
    """The traces of a server that sends them. ``start`` begins to send; spans may be recorded before."""

    def __init__(self, settings: TracesSettings) -> None:
        url, headers = url_of(settings.traces_endpoint), headers_of(settings.traces_headers)
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
