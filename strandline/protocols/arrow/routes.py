"""The routes of the Arrow protocol."""

from __future__ import annotations

from pathlib import Path

from strandline.protocols.arrow.append import ArrowAppends
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.logs import ArrowLogs
from strandline.protocols.arrow.progress import ProgressRemoval
from strandline.protocols.arrow.read import ArrowReads
from strandline.protocols.arrow.staged import DIRECTORY as STAGED_DIRECTORY
from strandline.protocols.arrow.staged import StagedRows, Unstaging
from strandline.service.http import Handler, Route

LOGS = "/arrow/logs"
LOG = "/arrow/logs/{name}"
RECORDS = "/arrow/records/{name}"
STAGED = "/arrow/staged/{name}"
PROGRESS = "/arrow/progress/{name}"


class ArrowProtocol:
    """``max_body_bytes`` is the limit of the gate."""

    def __init__(self, context: ArrowContext, max_body_bytes: int) -> None:
        self.context = context
        self.listing = ArrowLogs(context)
        self.reading = ArrowReads(context)
        staged = StagedRows(Path(context.engine.disk.local_path(STAGED_DIRECTORY)))
        self.appending = ArrowAppends(context, max_body_bytes, staged)
        self.unstaging = Unstaging(context, staged)
        self.forgetting = ProgressRemoval(context)

    def routes(self) -> list[Route]:
        return [
            _route("GET", LOGS, self.listing.list, "read"),
            _route("GET", LOG, self.listing.one, "read"),
            _route("GET", RECORDS, self.reading.read, "read"),
            _route("POST", RECORDS, self.appending.append, "write", body="any"),
            _route("POST", STAGED, self.appending.stage, "write", body="any"),
            _route("DELETE", STAGED, self.unstaging.remove, "write"),
            _route("DELETE", PROGRESS, self.forgetting.forget, "write"),
        ]


def _route(method: str, path: str, handler: Handler, *scopes: str, body: str = "none") -> Route:
    named = "{name}" in path
    return Route(
        method=method,
        path=path,
        handler=handler,
        scopes=scopes,
        names=("name",) if named else (),
        body=body,
        any_case=True,
        spans="name" if named else "",
    )
