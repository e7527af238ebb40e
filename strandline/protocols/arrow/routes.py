"""The routes of the Arrow protocol."""

from __future__ import annotations

from strandline.protocols.arrow.append import Appending
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.logs import Listing
from strandline.protocols.arrow.progress import Forgetting
from strandline.protocols.arrow.read import Reading
from strandline.service.http import Handler, Route

LOGS = "/arrow/logs"
LOG = "/arrow/logs/{name}"
RECORDS = "/arrow/records/{name}"
PROGRESS = "/arrow/progress/{name}"


class ArrowProtocol:
    """``max_body_bytes`` is the limit of the gate."""

    def __init__(self, context: ArrowContext, max_body_bytes: int) -> None:
        self.context = context
        self.listing = Listing(context)
        self.reading = Reading(context)
        self.appending = Appending(context, max_body_bytes)
        self.forgetting = Forgetting(context)

    def routes(self) -> list[Route]:
        return [
            _route("GET", LOGS, self.listing.list, "read"),
            _route("GET", LOG, self.listing.one, "read"),
            _route("GET", RECORDS, self.reading.read, "read"),
            _route("POST", RECORDS, self.appending.append, "write", body="any"),
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
