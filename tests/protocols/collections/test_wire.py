"""Answers that splice stored bytes are what the structs of the protocol declare; unknown members of requests."""

from __future__ import annotations

import pytest
from msgspec import convert
from support.collections_in_process import MakeStand, opened
from support.strict_answers import decode_strictly

from strandline.protocols.collections.wire import BatchAnswer, CollectionErrorAnswer, ElementAnswer, PullAnswer


def test_a_pull_and_a_batch_are_as_declared(stand: MakeStand) -> None:
    server = stand(opened("events", "events", max_pull_limit=1, allow_full=False), opened("second", "second"))
    server.pushed("events", {"n": 1.50, "text": "\u2028"}, {"n": 2})
    server.ask("POST", "/push/second", b'{"data":{"a":[1e2]},"authorPubkey":"a","authorSignature":"b"}')
    pulled = decode_strictly(server.pull("events", "checkpoint=0").body, PullAnswer)
    assert ([element.data for element in pulled.data["items"]], pulled.more) == ([{"n": 1.5, "text": "\u2028"}], True)
    query = 'collections=events,second,third&appendParams={"events":[{"last":1}],"second":[{"last":1}]}'
    batch = decode_strictly(server.get(f"/batch/pull?{query}").body, BatchAnswer).collections
    elements = [convert(entry.data["items"][0], ElementAnswer) for entry in (*batch["events"], *batch["second"])]
    assert [element.data for element in elements] == [{"n": 2}, {"a": [100]}]
    assert elements[1].author_pubkey == "a"
    assert batch["third"][0].error == "Collection not found"


@pytest.mark.parametrize(("given", "why"), [("lmit", "; did you mean 'limit'?"), ("colour", "")])
def test_an_unknown_bound_of_a_batch_is_refused(stand: MakeStand, given: str, why: str) -> None:
    answer = stand(opened()).get(f'/batch/pull?collections=events&appendParams={{"events":[{{"{given}":1}}]}}')
    assert answer.status == 400
    refused = decode_strictly(answer.body, CollectionErrorAnswer)
    assert refused.error == f"appendParams[\"events\"]: unknown member '{given}'{why}"
