"""``strandline pipeline``: its commands, put together."""

from __future__ import annotations

from strandline.cli.audit import audit_command
from strandline.cli.pipeline import app

app.command("audit")(audit_command)

__all__ = ["app"]
