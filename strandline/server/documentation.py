"""The documentation at ``/docs``, the API in a browser at ``/docs/api``, and the redirect of browsers from ``/``.

``make docs`` builds the site into the package, and wheels include it. The viewer of the API is always installed. It
shows the OpenAPI document of the server that serves it.
"""

from __future__ import annotations

from pathlib import Path

from strandline.server.gate import NOBODY
from strandline.service.http import Call, Reply, Route
from strandline.service.openapi import TEXT as STRING
from strandline.service.openapi import AnswerShape, Described, Operation
from strandline.service.problems import (
    DAMAGED_DATA,
    INTERNAL,
    NOT_FOUND,
    NOT_READY,
    SHUTTING_DOWN,
    STANDBY,
    THROTTLED,
    UNAUTHORIZED,
    ErrorAnswer,
    Refusal,
    by_code,
    unauthorized,
)
from strandline.service.static_files import FILE_ANSWERS, FILE_PARAMETERS, TEXT, StaticFiles, moved, moved_answer
from strandline.service.workers import Workers

SITE = Path(__file__).parent / "site"
VIEWER = Path(__file__).parent / "api_viewer"
INDEX = "index.html"

ROOT = "/"
PAGES = "/docs"
PAGE = "/docs/{path}"
API = "/docs/api"
API_FILE = "/docs/api/{path}"

NOT_INSTALLED = (
    "the documentation is not installed. Released packages include it; in a clone of the repository, run `make docs` "
    "and restart the server. /docs/api describes the API"
)


class Documentation:
    """Reads and compresses files on a thread, because the largest files take tens of milliseconds."""

    def __init__(self, workers: Workers, site: Path = SITE) -> None:
        self._workers = workers
        self._site = StaticFiles(site)
        self._viewer = StaticFiles(VIEWER)

    def routes(self) -> list[Route]:
        return [
            Route(method="GET", path=ROOT, handler=self.root, own_access=True),
            Route(method="GET", path=PAGES, handler=self.pages, public=True),
            Route(method="GET", path=PAGE, handler=self.page, public=True, spans="path"),
            Route(method="GET", path=API, handler=self.api, public=True),
            Route(method="GET", path=API_FILE, handler=self.api_file, public=True, spans="path"),
        ]

    def root(self, call: Call) -> Reply:
        """GET /. Redirects browsers to the console. Other clients get 404, or 401 without an API key."""
        if b"text/html" in call.head.headers.get(b"accept", b""):
            headers = ((b"location", b"console/"), (b"cache-control", b"no-store"), (b"vary", b"accept"))
            return Reply(b"", 307, TEXT, headers)
        if call.access is NOBODY:
            raise unauthorized()
        raise Refusal(NOT_FOUND, "nothing exists at /")

    def pages(self, call: Call) -> Reply:
        """GET /docs"""
        self._check_installed()
        return moved(call, "docs")

    async def page(self, call: Call) -> Reply:
        """GET /docs/{path}"""
        self._check_installed()
        path = call.param("path")
        page = f"{path}/{INDEX}".lstrip("/")
        if page in self._site:
            if not call.head.path.endswith("/"):
                return moved(call, path.rpartition("/")[2])
            path = page
        reply = await self._workers.normal.run(self._site.reply, path, call.head)
        if reply is None:
            raise Refusal(NOT_FOUND, f"the documentation has no page {path!r}; start at /docs/")
        return reply

    def api(self, call: Call) -> Reply:
        """GET /docs/api"""
        return moved(call, "api")

    async def api_file(self, call: Call) -> Reply:
        """GET /docs/api/{path}"""
        path = call.param("path")
        reply = await self._workers.normal.run(self._viewer.reply, path or INDEX, call.head)
        if reply is None:
            raise Refusal(NOT_FOUND, f"the viewer of the API has no file {path!r}")
        return reply

    def _check_installed(self) -> None:
        if not self._site:
            raise Refusal(NOT_FOUND, NOT_INSTALLED)


_GROUP = "documentation"

DOCUMENTATION = Described(
    name="documentation",
    groups={_GROUP: "The documentation and the description of the API, for browsers."},
    operations={
        ("GET", ROOT): Operation(
            group=_GROUP,
            summary="Redirect to the console",
            description="Requests that do not accept `text/html` get `not_found`.",
            answers=(AnswerShape(307, "The console is at `/console/`.", {"text/plain": STRING}),),
            errors=("unauthorized", "not_found"),
        ),
        ("GET", PAGES): Operation(
            group=_GROUP,
            summary="Redirect to the documentation",
            answers=moved_answer("`/docs/`"),
            errors=("not_found",),
        ),
        ("GET", PAGE): Operation(
            group=_GROUP,
            summary="Get a page of the documentation",
            answers=(*FILE_ANSWERS, *moved_answer("the same path with a slash at the end")),
            parameters=FILE_PARAMETERS,
            errors=("not_found",),
        ),
        ("GET", API): Operation(
            group=_GROUP, summary="Redirect to the description of the API", answers=moved_answer("`/docs/api/`")
        ),
        ("GET", API_FILE): Operation(
            group=_GROUP,
            summary="Get a file of the page that describes the API",
            answers=FILE_ANSWERS,
            parameters=FILE_PARAMETERS,
            errors=("not_found",),
        ),
    },
    problems=by_code([UNAUTHORIZED, NOT_FOUND, THROTTLED, DAMAGED_DATA, INTERNAL, NOT_READY, STANDBY, SHUTTING_DOWN]),
    error=ErrorAnswer,
)
