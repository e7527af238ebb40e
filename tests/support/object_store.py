"""An S3-compatible server in a process of its own: the Delta library waits for answers without letting other threads of
its process make them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

_SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("http://%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


@contextmanager
def object_store(bucket: str) -> Iterator[dict[str, str | bool]]:
    """With an empty bucket; the options to reach it."""
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint = server.stdout.readline().strip()
            urlopen(Request(f"{endpoint}/{bucket}", method="PUT")).close()
            yield {
                "endpoint": endpoint,
                "region": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "test",
                "allow_http": True,
            }
        finally:
            server.kill()
