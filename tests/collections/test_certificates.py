from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from support.signed_calls import ALICE, BOB, NOW_S, audience, changed, device, member

from strandline.collections import capabilities
from strandline.collections.capabilities import Certificates
from strandline.signing import certificates as caps
from strandline.signing import keys
from strandline.signing.certificates import BadCap


def code_of(known: Certificates, text: str, now_s: float = NOW_S) -> str:
    with pytest.raises(BadCap) as caught:
        known.read(text, now_s)
    return caught.value.code


def test_the_roles_of_a_certificate() -> None:
    known = Certificates()
    root = known.read(caps.encode(device()), NOW_S)
    assert root.roles == {"cap:read:*", "cap:write:*", "cap:list:*", "device:root"}
    other = known.read(caps.encode(device(ALICE, BOB)), NOW_S)
    assert "device:root" not in other.roles
    for cert in (member(ops=["read"], paths=["events/a"]), audience(ops=["read"], paths=["events/a"])):
        shared = known.read(caps.encode(cert), NOW_S)
        assert shared.roles == {"cap:read:events", f"delegated:{ALICE.user_id}:events"}


def test_a_certificate_that_comes_again_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, text = Certificates(), caps.encode(device())
    first = known.read(text, NOW_S)

    def verify(*arguments: object) -> bool:
        raise AssertionError("it was verified again")

    monkeypatch.setattr(caps, "verify", verify)
    monkeypatch.setattr(keys, "verify", verify)
    monkeypatch.setattr(caps, "check", verify)
    assert known.read(text, NOW_S + 1) is first


def test_a_certificate_that_comes_again_can_have_expired() -> None:
    known, cert = Certificates(), device()
    text = caps.encode(cert)
    known.read(text, NOW_S)
    known.read(text, cert["exp"] + 300)
    assert code_of(known, text, cert["exp"] + 301) == "expired"
    assert len(known) == 0, "and is forgotten"
    assert code_of(known, text, cert["exp"] + 301) == "expired"


def test_a_certificate_that_comes_again_can_be_too_early() -> None:
    known, text = Certificates(), caps.encode(device())
    known.read(text, NOW_S - 300)
    assert code_of(known, text, NOW_S - 301) == "not-yet-valid"


def test_the_number_of_remembered_certificates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "MAX_CERTIFICATES", 3)
    known = Certificates()
    texts = [caps.encode(device()) for _ in range(10)]
    for text in texts:
        known.read(text, NOW_S)
        known.read(texts[0], NOW_S)
    assert len(known) == 3


def test_what_does_not_hold_is_not_remembered() -> None:
    known = Certificates()
    forged = {**device(), "sub": BOB.public}
    assert code_of(known, caps.encode(forged)) == "bad-signature"
    assert code_of(known, caps.encode(changed(member(), scope={"ops": [], "collections": ["*"]}))).startswith("member-")
    assert len(known) == 0


@pytest.mark.parametrize(
    "text", ["", "é", "====", "e30", "bnVsbA==", "W10=", "\udc80".encode("utf-8", "surrogatepass").decode("latin-1")]
)
def test_what_is_no_certificate_is_refused(text: str) -> None:
    assert code_of(Certificates(), text).startswith("malformed-")


def test_a_certificate_of_great_depth_is_refused() -> None:
    deep = b'{"scope":' + b"[" * 2900 + b"]" * 2900 + b"}"
    assert code_of(Certificates(), b64encode(deep).decode()).startswith("malformed-")
    # One whose form is right, so that it comes to the signature.
    plain = b64decode(caps.encode({**device(), "more": None}))
    deep = plain.replace(b'"more":null', b'"more":' + b"[" * 2400 + b"]" * 2400)
    assert code_of(Certificates(), b64encode(deep).decode()) in ("malformed-encoding", "bad-signature")


def test_half_a_surrogate_pair_in_a_certificate_does_no_harm() -> None:
    known = Certificates()
    cert = changed(device(), note="\ud800", scope={"ops": ["read"], "collections": ["\ud800"], "paths": ["\udfff/**"]})
    read = known.read(caps.encode(cert), NOW_S)
    assert read.roles == {"cap:read:\ud800", "device:root"}
    assert not read.scope.covers("events/a", "alice")
