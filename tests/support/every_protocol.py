"""Requests of every protocol, for rules that hold for all of them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import httpx

from support.topics_client import Client

#: A configuration with a collection that anyone may write to.
COLLECTIONS = {
    "version": 1,
    "collections": [
        {
            "name": "open",
            "storagePath": "open/{id}",
            "readRoles": ["public"],
            "writeRoles": ["public"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "appendOnly": {"type": "by_timestamp", "requireAuthorSignature": False},
        }
    ],
}


class Request(NamedTuple):
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"

    def send(self, client: Client) -> httpx.Response:
        content = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        headers = {"content-type": self.content_type} if self.body is not None else {}
        return client.http.request(
            self.method, self.path, content=content if self.body is not None else None, headers=headers
        )
