from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starfish_protocol.revocation import build_revocation_list

from strandline.signing.certificates import everything, mint_audience, mint_device, writer
from strandline.signing.keys import Signer
from strandline.signing.revocations import BadRevocations, Revocations, signed_list

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
A, B, C = (Signer(VECTORS["keys"][name]["priv"]) for name in "ABC")
KEM = VECTORS["keyring"]["kemA"]["pub"]
NOW = 1714000000


def device(subject: Signer, nonce: int = 0, issuer: Signer = A) -> dict[str, Any]:
    return mint_device(issuer, subject.public, KEM, everything(), now_s=NOW, nonce=bytes([nonce] * 16))


def refused(revocations: Revocations, document: Any) -> str:
    with pytest.raises(BadRevocations) as caught:
        revocations.accept(document)
    return caught.value.code


def test_a_list_made_elsewhere_takes_certificates_back() -> None:
    revocations = Revocations()
    revocations.accept(VECTORS["rev"])
    taken_back = mint_device(A, B.public, KEM, everything(), now_s=NOW, nonce=bytes(range(16)))
    assert revocations.is_revoked(taken_back)
    assert not revocations.is_revoked(device(B))
    assert not revocations.is_revoked(device(B, issuer=C))
    assert not revocations.is_revoked(mint_device(A, C.public, KEM, everything(), now_s=NOW, nonce=bytes(range(16))))


def test_lists_are_signed_as_elsewhere() -> None:
    cert = device(B)
    entry = {"sub": cert["sub"], "nonce": cert["nonce"], "exp": cert["exp"]}
    assert signed_list(A, 3, [cert]) == build_revocation_list(A.public, A.seed, 3, [entry])
    subjects = [{"sub": C.public, "exp": NOW}]
    assert signed_list(A, 3, [], subjects) == build_revocation_list(A.public, A.seed, 3, [], subjects)


def test_a_subject_is_taken_back_with_all_certificates() -> None:
    revocations = Revocations()
    revocations.accept(signed_list(A, 1, [], [{"sub": B.public.upper(), "exp": NOW}, {"sub": "", "exp": NOW}]))
    assert revocations.is_revoked(device(B, 1))
    assert revocations.is_revoked(device(B, 2))
    assert not revocations.is_revoked(device(C))
    for_everybody = mint_audience(A, "events", writer("events"), now_s=NOW)
    assert not revocations.is_revoked(for_everybody)
    revocations.accept(signed_list(A, 2, [for_everybody]))
    assert revocations.is_revoked(for_everybody)
    assert not revocations.is_revoked(device(B, 1))


def test_only_a_higher_generation_is_taken() -> None:
    revocations = Revocations()
    revocations.accept(signed_list(A, 2, [device(B)]))
    assert refused(revocations, signed_list(A, 2)) == "stale-generation"
    assert refused(revocations, signed_list(A, 1)) == "stale-generation"
    assert revocations.is_revoked(device(B))


def test_only_what_the_issuer_has_signed_is_taken() -> None:
    revocations = Revocations()
    document = signed_list(A, 1, [device(B)])
    assert refused(revocations, {**document, "generation": 2}) == "bad-signature"
    assert refused(revocations, {**document, "iss": C.public, "issUserId": C.user_id}) == "bad-signature"
    assert not revocations.is_revoked(device(B))


def test_there_is_an_end_to_the_issuers_that_are_kept() -> None:
    revocations = Revocations(max_issuers=1)
    revocations.accept(signed_list(A, 1))
    assert refused(revocations, signed_list(B, 1)) == "too-many-issuers"
    revocations.accept(signed_list(A, 2))


@pytest.mark.parametrize(
    "change",
    [{"iss": 1}, {"sig": None}, {"generation": True}, {"generation": "1"}, {"revoked": {}}, {"revoked": [1]},
     {"revoked": [{"sub": "x"}]}, {"revokedSubjects": [{}]}, {"issUserId": "x"}],
)  # fmt: skip
def test_what_is_no_list_is_refused(change: dict[str, Any]) -> None:
    assert refused(Revocations(), {**signed_list(A, 1), **change}) == "malformed-shape"
    assert refused(Revocations(), [change]) == "malformed-shape"
