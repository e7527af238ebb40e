"""The browser module at ``/js/strandline.js``, for the pages of any site.

It is the npm package of ``clients/js``, unchanged. Its files contain no data, so every page may load them; which pages
may use the tables is decided where the tables are.
"""

from __future__ import annotations

from pathlib import Path

from strandline.server.cors import EVERY
from strandline.service.http import Call, Cors, Reply, Route
from strandline.service.openapi import Described, Operation
from strandline.service.problems import (
    DAMAGED_DATA,
    INTERNAL,
    NOT_FOUND,
    NOT_READY,
    SHUTTING_DOWN,
    STANDBY,
    THROTTLED,
    ErrorAnswer,
    Refusal,
    by_code,
)
from strandline.service.static_files import FILE_ANSWERS, FILE_PARAMETERS, StaticFiles
from strandline.service.workers import Workers

#: Where wheels have the module, and where a clone of the repository has it.
INSTALLED, SOURCE = Path(__file__).parent / "js", Path(__file__).parents[2] / "clients" / "js"
#: What to import.
ENTRY = "strandline.js"

FILE = "/js/{path}"

_CORS = Cors(
    (b"access-control-expose-headers", b"etag"),
    ((b"access-control-allow-methods", b"GET"),),
    frozenset([EVERY]),
)


class BrowserModule:
    """Reads and compresses files on a thread."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._files = StaticFiles(INSTALLED if INSTALLED.is_dir() else SOURCE)

    def routes(self) -> list[Route]:
        return [Route(method="GET", path=FILE, handler=self.file, public=True, spans="path", cors=_CORS)]

    async def file(self, call: Call) -> Reply:
        """GET /js/{path}"""
        path = call.param("path")
        reply = await self._workers.normal.run(self._files.reply, path, call.head)
        if reply is None:
            raise Refusal(NOT_FOUND, f"the browser module has no file {path!r}; import /js/{ENTRY}")
        return reply


_GROUP = "browser module"

BROWSER_MODULE = Described(
    name="browser module",
    groups={_GROUP: "The JavaScript module for tables, for web pages."},
    operations={
        ("GET", FILE): Operation(
            group=_GROUP,
            summary="Get a file of the browser module",
            description=f"Import `/js/{ENTRY}`. Pages of every origin may load it.",
            answers=FILE_ANSWERS,
            parameters=FILE_PARAMETERS,
            errors=("not_found",),
        ),
    },
    problems=by_code([NOT_FOUND, THROTTLED, DAMAGED_DATA, INTERNAL, NOT_READY, STANDBY, SHUTTING_DOWN]),
    error=ErrorAnswer,
)
