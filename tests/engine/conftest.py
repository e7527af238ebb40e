from __future__ import annotations

import logging
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str | bool]]:
    """A real S3-compatible server with an empty bucket ``cold``; the options to reach it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urlopen(Request(f"{endpoint}/cold", method="PUT")).close()
    yield {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": "test",
        "allow_http": True,
    }
    server.stop()
