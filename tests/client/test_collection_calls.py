from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from strandline.client import BadAnswer, Credential, DocumentRequest, NotPulled
from strandline.client.calls import ALWAYS, Answer
from strandline.client.collection_calls import (
    Signing,
    append,
    batch_pull,
    document_of,
    prefix_of,
    pull,
    read_appended,
    read_batch,
    read_pulled,
)
from strandline.client.connection import Address
from strandline.signing import certificates, signed_requests
from strandline.signing.author_proofs import Proof
from strandline.signing.keys import KemKey, Signer

ALICE = Signer("01" * 32)
NOW = 1_714_000_000
CAP = certificates.mint_device(ALICE, ALICE.public, KemKey("41" * 32).public, certificates.everything(), now_s=NOW)


def answered(body: Any) -> Answer:
    return Answer(200, {}, json.dumps(body).encode())


def test_an_append_can_be_repeated_only_if_it_has_a_time() -> None:
    without = append("", "events/d1", {"n": 1}, None, None)
    assert (without.method, without.target, without.repeatable) == ("POST", "/push/events/d1", 0.0)
    assert json.loads(without.body) == {"data": {"n": 1}}
    timed = append(prefix_of("team"), "events/a b", {}, 0, Proof("key", "signature"))
    assert (timed.target, timed.repeatable) == ("/v1/team/push/events/a%20b", ALWAYS)
    body = {"data": {}, "ts": 0, "authorPubkey": "key", "authorSignature": "signature"}
    assert json.loads(timed.body) == body
    with pytest.raises(ValueError, match="negative"):
        append("", "events", {}, -1, None)


def test_bounds_stand_in_the_query() -> None:
    assert pull("", "events/d1", 5, 2, None, False).target == "/pull/events/d1?checkpoint=5&last=2"
    assert pull("", "events", None, None, 7, False).target == "/pull/events?limit=7"
    assert pull("", "events", None, None, None, True).target == "/pull/events?full=true"
    for bounds in ((None, None, None, False), (1, None, None, True), (-1, None, None, False)):
        with pytest.raises(ValueError, match=r"nothing selects|cannot be combined|negative"):
            pull("", "events", *bounds)


def test_a_batch_stands_in_the_query_and_its_answer_is_matched_with_it() -> None:
    asks = {"a": [DocumentRequest(params={"id": 1}, since=0), DocumentRequest(last=2)], "b": []}
    request = batch_pull("", asks)
    query = {name: value for name, [value] in parse_qs(urlsplit(request.target).query).items()}
    assert query["collections"] == "a,b"
    assert json.loads(query["params"]) == {"a": [{"id": 1}, {}], "b": []}
    assert json.loads(query["appendParams"]) == {"a": [{"since": 0}, {"last": 2}], "b": []}
    entry = {"data": {"items": []}, "hash": "h", "timestamp": 1}
    told = read_batch(answered({"collections": {"a": [entry, {"error": "Forbidden"}], "b": []}}), asks)
    assert told["a"][1] == NotPulled("Forbidden")
    assert told["b"] == []
    with pytest.raises(BadAnswer, match="1 documents of a, expected 2"):
        read_batch(answered({"collections": {"a": [entry]}}), asks)
    with pytest.raises(ValueError, match="comma"):
        batch_pull("", {"a,b": []})


def test_every_try_has_a_signature_of_its_own_in_place_of_the_clients_key() -> None:
    signing = Signing(Credential(CAP, ALICE), lambda: "http://example.org", lambda: float(NOW))
    request = append("", "events", {}, None, None)
    nonces = set()
    for _ in range(2):
        headers = {name.decode(): value.decode() for name, value in signing(request).headers}
        nonces.add(headers["x-starfish-nonce"])
        assert signed_requests.holds(
            ALICE.public,
            headers["x-starfish-sig"],
            "POST",
            "/push/events",
            "example.org",
            request.body,
            NOW * 1000,
            headers["x-starfish-nonce"],
        )
    assert (len(nonces), signing.tries) == (2, 2)
    sent = Address("http://example.org", "key", None, None).request(signing(request), 1.0)
    assert [value[:4] for value in sent.headers.get_list("authorization")] == ["Cap "]
    assert Signing(None, lambda: "http://example.org", lambda: 0.0)(request) == request


@pytest.mark.parametrize("data", [1, "text", [1], None])
def test_only_objects_are_elements(data: object) -> None:
    with pytest.raises(TypeError, match="a JSON object"):
        document_of(data)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":1,"hash":1}', b"<html>"])
def test_what_is_no_answer_is_told(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_pulled(Answer(200, {}, body), "items")
    with pytest.raises(BadAnswer):
        read_appended(Answer(200, {}, body))
