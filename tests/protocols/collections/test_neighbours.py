"""A document is a log like any other to those who read, and to nobody else who writes."""

from __future__ import annotations

import httpx
import pytest
from support.collections_client import CollectionsClient
from support.collections_in_process import MakeStand, opened
from support.server_process import ServerProcess
from support.signed_calls import ALICE


@pytest.fixture
def document(served: ServerProcess, name: str) -> str:
    """One with three signed elements."""
    with CollectionsClient(served.url, ALICE) as alice:
        for n in range(3):
            assert alice.push(f"signed/{name}", {"n": n}).status_code == 200
    return f"signed/{name}"


def test_topics_read_a_document_and_do_not_append_to_it(served: ServerProcess, document: str) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        url = f"/v0/topics/{document.replace('/', '%2F')}"
        records = http.post(f"{url}/diff", json={}).json()["records"]
        assert [record["data"] for record in records] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert set(records[0]["meta"]) == {"authorPubkey", "authorSignature"}
        refused = http.post(url, json={"records": [{"data": {"n": 3}}]})
        assert refused.status_code == 409
        assert "document of a collection" in refused.json()["error"]["message"]
        several = http.post("/v0/write", json={"writes": [{"topic": document, "records": [{"data": 1}]}]})
        assert several.status_code == 409
        assert len(http.post(f"{url}/diff", json={}).json()["records"]) == 3


def test_streams_read_a_document_and_do_not_append_to_it(served: ServerProcess, document: str) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        url = f"/v1/stream/{document}"
        assert http.get(url, params={"offset": "-1"}).json() == [{"n": 0}, {"n": 1}, {"n": 2}]
        for refused in (
            http.post(url, json=[{"n": 3}]),
            http.post(url, headers={"stream-closed": "true"}),
            http.post(f"{url}/_schema", json={"schema": {"type": "object"}}),
            http.post(f"{url}/_profile", json={"profile": {"kind": "generic"}}),
        ):
            assert refused.status_code == 409
            assert "document of a collection" in refused.json()["error"]["message"]
        head = {"stream-forked-from": url}
        assert http.put(f"{url}-fork", headers=head).status_code == 409, "the name belongs to the collection"
        copy = f"/v1/stream/copy-of/{document}"
        assert http.put(copy, headers=head).status_code == 201
        assert http.post(copy, json=[{"n": 3}]).status_code == 204, "a copy is everybody's"
        assert len(http.get(url, params={"offset": "-1"}).json()) == 3


def test_a_router_leads_out_of_a_document_and_not_into_it(stand: MakeStand) -> None:
    server = stand(opened(path="document"))
    server.pushed("document", {"n": 1})
    assert server.ask("PUT", "/v0/topics/source", {}).status == 201
    into = server.ask("PUT", "/v0/routers/into", {"source": "source", "dest": "document"})
    assert (into.status, into.json["error"]["code"]) == (409, "not_writable")
    assert server.ask("PUT", "/v0/routers/out", {"source": "document", "dest": "copied"}).status == 201
    server.pushed("document", {"n": 2})
    copied = server.ask("POST", "/v0/topics/copied/diff", {}).json["records"]
    assert [record["data"]["n"] for record in copied][-1] == 2


def test_no_other_protocol_removes_a_document(served: ServerProcess, name: str) -> None:
    with CollectionsClient(served.url) as client:
        path = f"open/{name}"
        client.push(path, {"n": 1})
        assert client.http.delete(f"/v1/stream/{path}").status_code == 409
        assert [item["data"] for item in client.pull(path)["data"]["items"]] == [{"n": 1}]
