"""Serve the poll demo: Strandline with its tables on one port, the page on another. Ctrl-C stops both.

python examples/poll/serve.py [--data DIR] [--port 4000] [--page-port 4001]
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep

HERE = Path(__file__).resolve().parent
DECLARATIONS = HERE / "polls.py"

#: How often to check whether the server is ready.
LOOK_SECONDS = 0.05


class PageHandler(SimpleHTTPRequestHandler):
    """Serves the page. The page loads the browser module from Strandline."""

    def translate_path(self, path: str) -> str:
        name = path.partition("?")[0].lstrip("/") or "index.html"
        return str(HERE / "page" / name) if "/" not in name else ""

    def end_headers(self) -> None:
        self.send_header("cache-control", "no-cache")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: requests for files of the demo are not interesting."""


@contextmanager
def page_server(port: int = 0) -> Iterator[str]:
    """Serve the page on the loopback interface. Yields its address."""
    with ThreadingHTTPServer(("127.0.0.1", port), partial(PageHandler, directory=str(HERE / "page"))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def is_ready(port_file: Path) -> bool:
    """Return whether the server answers requests. It listens earlier, while it reads its data directory."""
    if not port_file.exists():
        return False
    connection = HTTPConnection(port_file.read_text().strip(), timeout=10)
    try:
        connection.request("GET", "/v0/ready")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve the poll demo.")
    parser.add_argument("--data", type=Path, default=Path("poll-data"), help="data directory (default: poll-data)")
    parser.add_argument("--port", type=int, default=4000, help="port of Strandline; 0 picks a free one (default: 4000)")
    parser.add_argument("--page-port", type=int, default=4001, help="port of the page; 0 picks one (default: 4001)")
    options = parser.parse_args()
    # SIGTERM runs the cleanup below, so that the server does not stay behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = [sys.executable, "-m", "strandline", "serve", "--declare", str(DECLARATIONS), "--pipeline", "off"]
        command += ["--data", str(options.data), "--port", str(options.port), "--port-file", str(port_file)]
        with page_server(options.page_port) as page, subprocess.Popen(command) as server:
            try:
                while server.poll() is None and not is_ready(port_file):
                    sleep(LOOK_SECONDS)
                if server.poll() is None:
                    address = port_file.read_text().strip()
                    print(f"server  http://{address}")
                    print(f"page    {page}/?server=http://{address}", flush=True)
                return server.wait()
            except KeyboardInterrupt:
                return server.wait()
            finally:
                server.terminate()


if __name__ == "__main__":
    sys.exit(main())
