from __future__ import annotations

import json
from pathlib import Path

import pytest
from starfish_identities.cap_mint import MintOpts, mint_device_cap
from starfish_identities.cap_mint import scopes as device_scopes
from starfish_sharing.cap_mint import AudienceMintOpts, mint_audience_cap, mint_member_cap
from starfish_sharing.cap_mint import MintOpts as MemberMintOpts
from starfish_sharing.cap_mint import scopes as shared_scopes

from strandline.signing.certificates import (
    BadCap,
    admin,
    everything,
    mint_audience,
    mint_device,
    mint_member,
    read_only,
    writer,
)
from strandline.signing.keys import Signer

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
A, B, C = (Signer(VECTORS["keys"][name]["priv"]) for name in "ABC")
KEM = VECTORS["keyring"]["kemA"]["pub"]
NOW = 1714000000
NONCE = bytes(range(16))


def test_a_device_is_certified_as_elsewhere() -> None:
    ours = mint_device(A, A.public, KEM, everything(), now_s=NOW, nonce=NONCE)
    assert ours == VECTORS["cap"]["device"]["cert"]
    subject = {"edPubHex": A.public, "kemPubHex": KEM}
    assert ours == mint_device_cap(A.seed, A.public, subject, everything(), MintOpts(nbf=NOW, nonce=NONCE))


def test_a_member_is_certified_as_elsewhere() -> None:
    subject = {"edPubHex": B.public, "kemPubHex": KEM, "userIdHex": B.user_id}
    options = MemberMintOpts(nbf=NOW, ttl_sec=60, nonce=NONCE)
    theirs = mint_member_cap(A.seed, A.public, subject, "events", writer("events"), options)
    ours = mint_member(A, B.public, KEM, "events", writer("events"), now_s=NOW, ttl_s=60, nonce=NONCE)
    assert ours == theirs


@pytest.mark.parametrize("audience", [None, [C.public]])
def test_an_audience_is_certified_as_elsewhere(audience: list[str] | None) -> None:
    options = AudienceMintOpts(nbf=NOW, nonce=NONCE, audience=audience)
    theirs = mint_audience_cap(A.seed, A.public, "events", read_only("events"), options)
    assert mint_audience(A, "events", read_only("events"), audience, now_s=NOW, nonce=NONCE) == theirs


def test_scopes_are_those_known_elsewhere() -> None:
    assert everything() == device_scopes.root_all()
    assert read_only("c") == shared_scopes.read_only("c")
    assert writer("c") == shared_scopes.writer("c")
    assert admin("c") == shared_scopes.admin("c")


def test_certificates_that_would_be_refused_are_not_made() -> None:
    with pytest.raises(BadCap, match="inverted-window"):
        mint_device(A, B.public, KEM, everything(), now_s=NOW, ttl_s=0)
    with pytest.raises(BadCap, match="malformed-shape"):
        mint_device(A, "nobody", KEM, everything(), now_s=NOW)
    with pytest.raises(BadCap, match="member-members-not-denied"):
        mint_member(A, B.public, KEM, "events", admin("events"), now_s=NOW)
    with pytest.raises(BadCap, match="member-self"):
        mint_member(A, A.public, KEM, "events", writer("events"), now_s=NOW)
    with pytest.raises(BadCap, match="audience-empty-aud"):
        mint_audience(A, "events", writer("events"), [], now_s=NOW)


def test_each_certificate_has_a_nonce_of_its_own() -> None:
    assert len({mint_device(A, B.public, KEM, everything(), now_s=NOW)["nonce"] for _ in range(5)}) == 5
