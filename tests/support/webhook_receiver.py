"""A webhook on the loopback: remembers what it is sent, and answers what it is told to."""

from __future__ import annotations

import json
import queue
import threading
from base64 import urlsafe_b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from support.topics_client import PATIENCE_SECONDS


class Notification(NamedTuple):
    raw: bytes
    body: dict[str, Any]
    signature: str

    def verified_by(self, keys: dict[str, Any]) -> bool:
        """Whether one of the keys made the signature, over the time and the bytes that came."""
        parts = dict(part.split("=", 1) for part in self.signature.split(","))
        key = next(key for key in keys["keys"] if key["kid"] == parts["kid"])
        public = Ed25519PublicKey.from_public_bytes(_decode(key["x"]))
        try:
            public.verify(_decode(parts["ed25519"]), parts["t"].encode() + b"." + self.raw)
        except InvalidSignature:
            return False
        return True


class WebhookReceiver:
    """``answers`` are the statuses and bodies of the next answers; the last one stays."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = [(200, {})]
        self._received: queue.Queue[Notification] = queue.Queue()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                answers = receiver.answers
                status, body = answers.pop(0) if len(answers) > 1 else answers[0]
                content = json.dumps(body).encode()
                receiver._received.put(Notification(raw, json.loads(raw), self.headers["webhook-signature"]))
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def next(self) -> Notification:
        """What comes next, waiting for it."""
        return self._received.get(timeout=PATIENCE_SECONDS)

    @property
    def empty(self) -> bool:
        return self._received.empty()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
