"""The page of the demo: the files of a directory, served on a port of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from strandline.cli.demo.server import HOST


class PageHandler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("cache-control", "no-cache")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: requests for files of the page are not interesting."""


@contextmanager
def served_page(directory: Path) -> Iterator[str]:
    """Serve a directory on the loopback interface, on a free port. Yields its address."""
    with ThreadingHTTPServer((HOST, 0), partial(PageHandler, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
