"""The rows and documents of ``declared_office`` on a server, and what tests do to them over HTTP."""

from __future__ import annotations

from typing import Any

from strandline.signing import author_proofs
from strandline.signing.keys import Signer
from support.console_shop import Shop


class Office(Shop):
    """Parents and documents are never used twice, so tests share a server."""

    def table(self, operation: str, body: Any, user: str = "") -> Any:
        return self.call("POST", f"/tables/{operation}", body, headers={"strandline-user": user} if user else {})

    def poll(self, *options: int, user: str = "bob") -> str:
        """A new poll of ann's with a vote of the user's for each option; returns the parent of the votes."""
        title = self.name("poll")
        parent = str(self.table("poll/append", {"parent": "main", "payload": {"title": title}}, "ann")["id"])
        items = [{"option": each, "comment": f"comment {at}"} for at, each in enumerate(options, 1)]
        for start in range(0, len(items), 100):
            self.table("vote/appendBulk", {"parent": parent, "items": items[start : start + 100]}, user)
        return parent

    def rows(self, parent: str) -> list[Any]:
        return list(self.call("GET", "/console/api/table/vote/rows", params={"parent": parent})["rows"])

    def row(self, id: str) -> Any:
        return self.call("GET", "/console/api/table/vote/row", params={"id": id})

    def room(self, *data: Any, signer: Signer | None = None) -> str:
        """A new document of chat with these elements."""
        path = f"rooms/{self.name('room')}"
        for each in data:
            self.push(path, each, signer)
        return path

    def push(self, path: str, data: Any, signer: Signer | None = None) -> None:
        body: dict[str, Any] = {"data": data}
        if signer is not None:
            proof = author_proofs.sign(signer, path, data)
            body |= {"authorPubkey": proof.public_key, "authorSignature": proof.signature}
        self.call("POST", f"/push/{path}", body)
