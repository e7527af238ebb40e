"""The fast lane remembers heads that come again. One that is signed is sent once."""

from __future__ import annotations

from support.collections_in_process import MakeStand, opened
from support.signed_calls import ALICE, device, headers_of

from strandline.server.fast_lane import Heads


def raw(method: str, target: str, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


def test_a_signed_head_keeps_its_certificate_and_is_not_remembered(stand: MakeStand) -> None:
    heads = Heads(stand(opened(read_roles=("cap:read:*",))).gate)
    target = "/pull/events?last=1"
    for _ in range(3):
        head = heads.get(raw("GET", target, headers_of(device(), ALICE, "GET", target)))
        assert head is not None
        assert head.headers[b"authorization"].startswith(b"Cap ")
    assert heads.known == {}


def test_a_head_that_is_not_signed_is(stand: MakeStand) -> None:
    heads = Heads(stand(opened()).gate)
    again = raw("POST", "/push/events", {"host": "x", "content-type": "application/json", "content-length": "2"})
    assert heads.get(again) is heads.get(again)
    assert list(heads.known) == [again]


def test_the_key_of_a_topic_is_still_forgotten(stand: MakeStand) -> None:
    heads = Heads(stand(opened()).gate)
    known = heads.get(raw("POST", "/v0/topics/a", {"content-length": "2", "authorization": "Bearer secret",
                                                   "content-type": "application/json"}))  # fmt: skip
    assert known is not None
    assert b"authorization" not in known.headers
    assert len(heads.known) == 1
