"""A server that waits for its turn: it answers every request with 503 and a code."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from strandline.service.problems import Problem, Refusal, error_body

STANDBY = Problem("standby", 503, "The server waits until it takes over.", 1)


class StandbyServer:
    """``problem`` is what it answers. Its retry hint of a second is left out, so that tests do not wait for it."""

    def __init__(self, problem: Problem = STANDBY, leader: str = "") -> None:
        #: How many requests there were.
        self.requests = 0
        body = error_body(Refusal(problem, "this server is a standby", {"leader": leader} if leader else None))

        class Handler(BaseHTTPRequestHandler):
            def answer(handler) -> None:  # noqa: N805
                self.requests += 1
                handler.rfile.read(int(handler.headers.get("content-length", 0)))
                handler.send_response(problem.status)
                handler.send_header("content-type", "application/json")
                handler.send_header("content-length", str(len(body)))
                handler.end_headers()
                if handler.command != "HEAD":
                    handler.wfile.write(body)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
