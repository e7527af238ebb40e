"""A small client of the streams protocol for tests: HTTP and event streams, all with deadlines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from support.topics_client import PATIENCE_SECONDS

JSON = "application/json"
TEXT = "text/plain"
START = "0" * 26


class Event(NamedTuple):
    """One server-sent event; lines of data joined as browsers join them."""

    type: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class StreamsClient:
    """One keep-alive connection pool. ``create``, ``append``, ``read`` check that they succeed."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # Certificates, which nobody looks at here, would take longer to load than most tests take.
        self.http = httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False, verify=False)

    def close(self) -> None:
        self.http.close()

    def request(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """``path`` is the stream's name or, with a slash in front, a whole path. ``body``: bytes or text as they are,
        anything else as JSON; no content type is added."""
        url = path if path.startswith("/") else f"/v1/stream/{path}"
        content = body if isinstance(body, bytes | str) or body is None else json.dumps(body)
        return self.http.request(method, url, content=content, **options)

    # --- what succeeds ---------------------------------------------------------------------------------------------

    def create(self, name: str, content_type: str | None = JSON, body: object = None, **headers: str) -> httpx.Response:
        """``headers`` by their names with underscores: ``stream_ttl="60"``."""
        response = self.request("PUT", name, body, headers=_headers(content_type, headers))
        assert response.status_code == 201, f"{response.status_code} {response.text}"
        return response

    def append(self, name: str, body: object, content_type: str = JSON, **headers: str) -> httpx.Response:
        response = self.request("POST", name, body, headers=_headers(content_type, headers))
        assert response.status_code in (200, 204), f"{response.status_code} {response.text}"
        return response

    def read(self, name: str, **query: str | int) -> httpx.Response:
        response = self.request("GET", name, params=query)
        assert response.status_code == 200, f"{response.status_code} {response.text}"
        return response

    def values(self, name: str, **query: str | int) -> list[Any]:
        """All values of a JSON stream, page by page."""
        values: list[Any] = []
        while True:
            response = self.read(name, **query)
            values += response.json()
            if response.headers.get("stream-up-to-date") == "true":
                return values
            query = {**query, "offset": response.headers["stream-next-offset"]}

    # --- what does not ---------------------------------------------------------------------------------------------

    def refused(
        self, status: int, method: str, path: str, body: object = None, code: str | None = None, **options: Any
    ) -> str:
        """The message of an error of this status, which has the protocol's form."""
        response = self.request(method, path, body, **options)
        assert response.status_code == status, f"{response.status_code} {response.text}"
        error = response.json()["error"]
        assert isinstance(error["code"], str)
        assert isinstance(error["message"], str)
        if code is not None:
            assert error["code"] == code
        assert response.headers["x-content-type-options"] == "nosniff"
        message: str = error["message"]
        return message

    # --- event streams ---------------------------------------------------------------------------------------------

    @contextmanager
    def events(self, name: str, **query: str | int) -> Iterator[tuple[httpx.Response, Iterator[Event]]]:
        """The response to a live read, and its events as they come."""
        with self.http.stream("GET", f"/v1/stream/{name}", params={"live": "sse", **query}) as response:
            yield response, _events(response)


def _events(response: httpx.Response) -> Iterator[Event]:
    kind, data = "message", []
    for line in response.iter_lines():
        if not line:
            if data:
                yield Event(kind, "\n".join(data))
            kind, data = "message", []
        elif line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:])


def _headers(content_type: str | None, further: dict[str, str]) -> dict[str, str]:
    headers = {name.replace("_", "-"): value for name, value in further.items()}
    return headers if content_type is None else {"content-type": content_type, **headers}
