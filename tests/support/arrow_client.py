"""A small client of the Arrow face for tests."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pyarrow as pa

from support.topics_client import PATIENCE_SECONDS

ARROW = "application/vnd.apache.arrow.stream"


def encode(table: Any, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def table(*data: Any, **columns: list[Any]) -> Any:
    """Rows with these payloads: bytes, or values as JSON; further columns by name."""
    payloads = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in data]
    arrays = {"data": pa.array(payloads, pa.binary())}
    for name, values in columns.items():
        arrays[name] = pa.array(values, pa.binary() if name == "meta" else pa.string())
    return pa.table(arrays)


class ArrowClient:
    def __init__(self, url: str, key: str = "") -> None:
        self.url = url
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False, verify=False)

    def close(self) -> None:
        self.http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, f"/arrow/{path}", **options)

    def call(self, method: str, path: str, *, status: int = 200, **options: Any) -> Any:
        response = self.request(method, path, **options)
        assert response.status_code == status, f"{response.status_code} {response.text}"
        return response.json()

    def refused(self, method: str, path: str, status: int, code: str, **options: Any) -> dict[str, Any]:
        """The error, which has the server's form."""
        response = self.request(method, path, **options)
        assert response.status_code == status, f"{response.status_code} {response.text}"
        error: dict[str, Any] = response.json()["error"]
        assert error["code"] == code
        assert error["message"]
        return error

    def read(self, name: str, **query: Any) -> Any:
        """The records as a table."""
        response = self.request("GET", f"records/{name}", params=query)
        assert response.status_code == 200, f"{response.status_code} {response.text}"
        assert response.headers["content-type"] == ARROW
        return pa.ipc.open_stream(response.content).read_all()

    def values(self, name: str, **query: Any) -> list[Any]:
        """The payloads, which are JSON."""
        return [json.loads(data) for data in self.read(name, **query).column("data").to_pylist()]

    def seqs(self, name: str, **query: Any) -> list[int]:
        seqs: list[int] = self.read(name, **query).column("seq").to_pylist()
        return seqs

    @staticmethod
    def sending(body: Any, progress: Any = None, before: Any = None, **query: Any) -> dict[str, Any]:
        """The options of a request that appends."""
        headers = {"content-type": ARROW}
        if progress is not None:
            headers["strandline-progress"] = json.dumps(progress)
        if before is not None:
            headers["strandline-progress-before"] = before if isinstance(before, str) else json.dumps(before)
        content = body if isinstance(body, bytes) else encode(body)
        return {"content": content, "headers": headers, "params": query}

    def append(self, name: str, body: Any, *, status: int = 200, **more: Any) -> Any:
        return self.call("POST", f"records/{name}", status=status, **self.sending(body, **more))

    def not_appended(self, name: str, body: Any, status: int, code: str, **more: Any) -> dict[str, Any]:
        return self.refused("POST", f"records/{name}", status, code, **self.sending(body, **more))
