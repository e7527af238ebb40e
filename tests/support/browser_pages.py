"""What the tests do with pages: a log in a page, waiting for what is to be seen, and no word of trouble meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, Route

ROOT = Path(__file__).parents[2]

#: What has not happened by then never happens. Generous: the machine may be busy.
PATIENCE_MS = 60_000

#: The server may say no, and may be gone for a while; browsers tell of that as an error. One that stops or starts says
#: no to what they ask beforehand, too.
EXPECTED = ("Failed to load resource", "Access to fetch")


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served_files(directory: Path = ROOT) -> Iterator[str]:
    """A server for the files of pages, by default those of the project: another origin than that of the tables."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Complaints:
    """What pages said on their consoles that nobody expects."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def listen(self, context: BrowserContext) -> None:
        context.on("console", lambda message: self._hear(message.type, message.text))
        context.on("weberror", lambda error: self._hear("error", str(error.error)))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not text.startswith(EXPECTED):
            self.said.append(f"{kind}: {text}")


class Log:
    """A log of the module, in a page. Calls go to the real one and wait for its promises."""

    def __init__(self, page: Page, url: str, opened: str = "openLog", **options: Any) -> None:
        self.page = page
        # Attempts follow each other quickly here, and go on for as long as a test may take.
        options = {"retry": {"firstMs": 20, "maxMs": 200, "forMs": PATIENCE_MS}, **options}
        self._handle = page.evaluate_handle(f"([url, options]) => {opened}(url, options)", [url, options])

    def call(self, method: str, *arguments: Any) -> Any:
        """What the promise is kept with; an error as ``{"error": {code, …}}``."""
        return self._handle.evaluate("(log, [method, arguments]) => call(log, method, arguments)", [method, arguments])

    def begin(self, method: str, *arguments: Any) -> None:
        """Call it without waiting; see ``ended``."""
        self._handle.evaluate("(log, [method, arguments]) => begin(log, method, arguments)", [method, arguments])

    def ended(self) -> Any:
        """What became of what was begun last."""
        return self._handle.evaluate("(log) => log.begun")

    @property
    def snapshot(self) -> Any:
        return self._handle.evaluate("(log) => ({ ...log.getSnapshot(), error: log.error && told(log.error) })")

    @property
    def data(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._handle.evaluate("(log) => log.data")
        return rows

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.data]

    @property
    def doubles(self) -> int:
        """How often a row was to be seen twice, in all the time since the log was opened."""
        count: int = self._handle.evaluate("(log) => log.doubles")
        return count

    def until(self, condition: str, argument: Any = None) -> Log:
        """Wait until this is so: an expression of ``log`` and ``argument``."""
        self.page.wait_for_function(f"([log, argument]) => {condition}", arg=[self._handle, argument])
        return self

    def stands(self) -> Log:
        return self.until("log.isLive && !log.isLoading")

    def close(self) -> None:
        self._handle.evaluate("(log) => log.close()")


class Held:
    """Requests that a page has made and that go on when the test says so."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self._pattern = pattern
        self._held: list[Route] = []
        self._is_over = False
        page.route(pattern, self._hold)

    def _hold(self, route: Route) -> None:
        # What browsers ask beforehand is not what the test is about.
        if self._is_over or route.request.method == "OPTIONS":
            route.continue_()
        else:
            self._held.append(route)

    def wait(self) -> Held:
        """Until there is one."""
        waited = 0
        while not self._held:
            self._page.wait_for_timeout(5)
            waited += 5
            assert waited < PATIENCE_MS, f"nobody asked for {self._pattern}"
        return self

    def release(self) -> None:
        self._is_over = True
        for route in self._held:
            route.continue_()

    def lose(self) -> None:
        """They get to the server, and their answers do not get back."""
        self.fetch()
        self.abort()

    def fetch(self) -> None:
        """They get to the server, and their answers are kept here."""
        for route in self._held:
            route.fetch()

    def abort(self) -> None:
        """They get no answer."""
        self._is_over = True
        for route in self._held:
            route.abort()
