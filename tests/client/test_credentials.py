from __future__ import annotations

import pytest

from strandline.client import Credential, OwnIdentity
from strandline.client.credentials import current
from strandline.signing import certificates
from strandline.signing.certificates import BadCap
from strandline.signing.keys import KemKey, Signer

ALICE, BOB = Signer("01" * 32), Signer("02" * 32)
KEM = KemKey("41" * 32)
NOW = 1_714_000_000


def test_a_credential_is_a_certificate_with_the_key_it_is_about() -> None:
    cap = certificates.mint_device(ALICE, BOB.public, KEM.public, certificates.everything(), now_s=NOW)
    credential = Credential(cap, BOB)
    assert credential.author == BOB.public
    assert not credential.names_presenter
    assert certificates.decode(credential.authorization.removeprefix("Cap ")) == cap
    assert BOB.seed not in repr(credential)
    with pytest.raises(ValueError, match="is for the key"):
        Credential(cap, ALICE)
    with pytest.raises(BadCap):
        Credential({**cap, "scope": None}, BOB)


def test_a_link_is_used_with_ones_own_key() -> None:
    cap = certificates.mint_audience(ALICE, "events", certificates.writer("events"), [BOB.public], now_s=NOW)
    credential = Credential.from_link(certificates.encode_link(cap), BOB)
    assert credential.cap == cap
    assert credential.names_presenter
    assert credential.author == BOB.public
    with pytest.raises(ValueError, match="audience does not include"):
        Credential(cap, ALICE)
    with pytest.raises(BadCap):
        Credential.from_link("nonsense", BOB)


def test_an_identity_renews_its_own_credential_when_half_of_its_time_is_over() -> None:
    now = [float(NOW)]
    identity = OwnIdentity(ALICE, KEM, ttl_s=100, clock=lambda: now[0])
    first = current(identity)
    assert first is not None
    assert (first.cap["nbf"], first.cap["exp"]) == (NOW, NOW + 100)
    now[0] += 50
    assert current(identity) is first
    now[0] += 1
    second = current(identity)
    assert second is not None
    assert (second.cap["nbf"], second.cap["exp"]) == (NOW + 51, NOW + 151)
    assert current(second) is second
    assert current(None) is None


def test_a_passphrase_is_an_identity() -> None:
    one, other = (OwnIdentity.from_passphrase("correct horse") for _ in range(2))
    assert one.user_id == other.user_id == one().cap["issUserId"]
