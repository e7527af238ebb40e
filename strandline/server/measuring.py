"""What the metrics are made of: a look at everything at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.faces.web import Reply

if TYPE_CHECKING:
    from strandline.server.application import Application


def measure(application: Application, as_json: bool) -> Reply:
    ready = int(application.status.ready)
    return Reply(b"topics_ready %d\n" % ready, content_type=b"text/plain; version=0.0.4")
