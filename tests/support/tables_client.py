"""A server with declared tables, and clients that say who they are."""

from __future__ import annotations

import json
from typing import Any

from support.document_tables import ROOT
from support.server_process import ServerProcess
from support.topics_client import Client

#: What the servers of the tests are started with.
POLLS = ROOT / "tests/support/declared_polls.py"


_BESIDE = {"strandline-head", "strandline-has-more", "strandline-last", "strandline-complete"}


class TablesClient(Client):
    """Somebody who uses tables: ``user`` is who they say they are."""

    def __init__(self, url: str, user: str = "", key: str = "") -> None:
        super().__init__(url, key)
        self.user = user
        if user:
            self.headers["strandline-user"] = user
            self.http.headers["strandline-user"] = user

    def write(self, table: str, op: str, *, status: int = 200, **body: Any) -> Any:  # type: ignore[override]
        return self.call("POST", f"/tables/{table}/{op}", body, status=status)

    def append(self, table: str, parent: str, payload: Any = None, **more: Any) -> Any:
        return self.write(table, "append", parent=parent, payload={} if payload is None else payload, **more)

    def read(self, table: str, op: str, *, variant: str = "auth", status: int = 200, **query: Any) -> Any:
        return self.call("GET", f"/tables/{table}/{variant}/{op}", params=query, status=status)

    def rows_after(self, table: str, *, variant: str = "auth", **query: Any) -> tuple[list[Any], dict[str, Any]]:
        """The rows of ``listAfter``, and what its headers say."""
        return self._rows(f"/tables/{table}/{variant}/listAfter", query)

    def found(self, table: str, *, variant: str = "auth", **query: Any) -> tuple[list[Any], dict[str, Any]]:
        """The rows of ``search``, and what its headers say."""
        return self._rows(f"/tables/{table}/{variant}/search", query)

    def _rows(self, path: str, query: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        response = self.request("GET", path, params=query)
        assert response.status_code == 200, response.text
        headers = {name.lower(): value for name, value in response.headers.items()}
        ours = {name.removeprefix("strandline-"): json.loads(headers[name]) for name in headers if name in _BESIDE}
        return response.json(), ours

    def refusal(self, method: str, path: str, body: object = None, *, status: int, **options: Any) -> Any:
        """The error of a request that is refused."""
        answer = self.call(method, path, body, status=status, **options)
        assert set(answer) == {"error"}, answer
        return answer["error"]

    def refused_write(self, table: str, op: str, *, status: int, **body: Any) -> Any:
        error = self.refusal("POST", f"/tables/{table}/{op}", body, status=status)
        assert (error["table"], error["op"]) == (table, op)
        return error

    def refused_read(self, table: str, op: str, *, variant: str = "auth", status: int, **query: Any) -> Any:
        error = self.refusal("GET", f"/tables/{table}/{variant}/{op}", status=status, params=query)
        assert (error["table"], error["op"]) == (table, op)
        return error


class Bed:
    """A server and those who use it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._clients: list[TablesClient] = []

    def user(self, name: str = "", key: str = "") -> TablesClient:
        client = TablesClient(self.server.url, name, key)
        self._clients.append(client)
        return client

    def close(self) -> None:
        while self._clients:
            self._clients.pop().close()
