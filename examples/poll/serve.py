"""Serve the poll demo: Strandline with its tables on one port, the page on another. Ctrl-C ends both.

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
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep

HERE = Path(__file__).resolve().parent
MODULE = HERE.parents[1] / "clients" / "js"
DECLARATIONS = HERE / "polls.py"

#: How long to wait between two looks whether the server listens.
LOOK_SECONDS = 0.05


class PageHandler(SimpleHTTPRequestHandler):
    """The page, and under ``/strandline/`` the module that it uses."""

    def translate_path(self, path: str) -> str:
        name = path.partition("?")[0].lstrip("/") or "index.html"
        folder = HERE / "page"
        if name.startswith("strandline/"):
            folder, name = MODULE, name.removeprefix("strandline/")
        return str(folder / name) if "/" not in name else ""

    def end_headers(self) -> None:
        self.send_header("cache-control", "no-cache")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Who asks for a file of a demo is nobody's business."""


@contextmanager
def page_server(port: int = 0) -> Iterator[str]:
    """The page, on the loopback; gives its address."""
    with ThreadingHTTPServer(("127.0.0.1", port), partial(PageHandler, directory=str(HERE / "page"))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve the poll demo.")
    parser.add_argument("--data", type=Path, default=Path("poll-data"), help="where polls and votes are kept")
    parser.add_argument("--port", type=int, default=4000, help="where Strandline listens; 0: anywhere")
    parser.add_argument("--page-port", type=int, default=4001, help="where the page is; 0: anywhere")
    options = parser.parse_args()
    # Asked to stop in whatever way, it does not leave the other program behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = [sys.executable, "-m", "strandline", "serve", "--declare", str(DECLARATIONS), "--pipeline", "off"]
        command += ["--data", str(options.data), "--port", str(options.port), "--port-file", str(port_file)]
        with page_server(options.page_port) as page, subprocess.Popen(command) as server:
            try:
                while not port_file.exists() and server.poll() is None:
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
