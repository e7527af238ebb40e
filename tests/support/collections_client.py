"""A small client of collections for tests over HTTP, signed or not."""

from __future__ import annotations

import json
from time import time
from typing import Any

import httpx

from strandline.signing import certificates
from strandline.signing.author_proofs import sign
from strandline.signing.keys import KemKey, Signer
from support.signed_calls import headers_of
from support.topics_client import PATIENCE_SECONDS

KEM = KemKey("65" * 32).public


def root_of(signer: Signer) -> dict[str, Any]:
    """A certificate that lets a device do everything, good from now on."""
    return certificates.mint_device(signer, signer.public, KEM, certificates.everything(), now_s=int(time()))


class CollectionsClient:
    """One connection pool. With a signer every request is signed, and so is every element."""

    def __init__(self, url: str, signer: Signer | None = None, cap: dict[str, Any] | None = None) -> None:
        self.http = httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False, verify=False)
        self._host = url.removeprefix("http://")
        self._signer = signer
        self._cap = cap if cap is not None or signer is None else root_of(signer)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> CollectionsClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> httpx.Response:
        sent = {"content-type": "application/json"} if method == "POST" else {}
        if self._signer is not None and self._cap is not None:
            sent |= headers_of(self._cap, self._signer, method, target, body, ts=int(time() * 1000), host=self._host)
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.request(method, target, content=body, headers=sent)

    def push(self, path: str, data: Any, ts: int | None = None, mount: str = "") -> httpx.Response:
        body = {"data": data} if ts is None else {"data": data, "ts": ts}
        if self._signer is not None:
            proof = sign(self._signer, path, data)
            body |= {"authorPubkey": proof.public_key, "authorSignature": proof.signature}
        return self.ask("POST", f"{mount}/push/{path}", json.dumps(body).encode())

    def pull(self, path: str, query: str = "full=true", mount: str = "") -> Any:
        response = self.ask("GET", f"{mount}/pull/{path}?{query}")
        assert response.status_code == 200, f"{response.status_code} {response.text}"
        return response.json()
