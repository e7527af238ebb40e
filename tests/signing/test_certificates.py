from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starfish_protocol.cap import assert_cap_cert_well_formed, verify_cap_cert
from starfish_sharing import parse_public_link
from starfish_sharing.cap_mint import assert_audience_cap_shape, assert_member_cap_shape

from strandline.signing.certificates import (
    BadCap,
    check,
    check_shape,
    check_shared,
    decode,
    decode_link,
    encode,
    encode_link,
    everything,
    mint_audience,
    mint_device,
    mint_member,
    writer,
)
from strandline.signing.certificates import signed_bytes as signed_bytes_of
from strandline.signing.keys import KemKey, Signer

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
A, B, C = (Signer(VECTORS["keys"][name]["priv"]) for name in "ABC")
KEM = KemKey(VECTORS["keyring"]["kemA"]["priv"])
NOW = 1714000000
DEVICE = mint_device(A, A.public, KEM.public, everything(), now_s=NOW)
MEMBER = mint_member(A, B.public, KEM.public, "events", writer("events"), now_s=NOW)
AUDIENCE = mint_audience(A, "events", writer("events"), [C.public], now_s=NOW)
CERTS = [DEVICE, MEMBER, AUDIENCE]


@pytest.mark.parametrize("kind", ["device", "member", "audience"])
def test_certificates_made_elsewhere_are_valid(kind: str) -> None:
    vector = VECTORS["cap"][kind]
    cert = json.loads(vector["canon"].partition("\n")[2])
    cert["sig"] = vector["sig"] if "sig" in vector else vector["cert"]["sig"]
    assert signed_bytes_of(cert) == vector["canon"].encode()
    check(cert, NOW)
    check_shared(cert)
    if "header" in vector:
        assert cert == vector["cert"] == decode(vector["header"].removeprefix("Cap "))
        assert vector["header"] == f"Cap {encode(cert)}"


def test_a_link_made_elsewhere_can_be_read_and_made_again() -> None:
    fragment = VECTORS["cap"]["publicLinkFragment"]
    cert = decode_link(fragment)
    check(cert, NOW)
    assert encode_link(cert) == fragment


@pytest.mark.parametrize("cert", CERTS, ids=lambda cert: cert["kind"])
def test_what_is_minted_here_is_valid_here_and_elsewhere(cert: dict[str, Any]) -> None:
    check(cert, NOW)
    check_shared(cert)
    assert decode(encode(cert)) == decode(encode(cert).rstrip("=")) == cert
    assert verify_cap_cert(cert, now=NOW) == {"ok": True}
    assert_member_cap_shape(cert)
    assert_audience_cap_shape(cert)


def test_a_link_goes_round_here_and_elsewhere() -> None:
    assert decode_link(encode_link(AUDIENCE)) == AUDIENCE
    assert parse_public_link(encode_link(AUDIENCE)).cap == AUDIENCE
    with pytest.raises(BadCap):
        encode_link(DEVICE)


@pytest.mark.parametrize("text", ["", "!", "e30K=e30K", "W10=", "eyJ", "A" * 8193, "é", "e30A"])
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(BadCap, match="malformed-encoding"):
        decode(text)


@pytest.mark.parametrize("fragment", ["", "e30", "eyJ2IjoxfQ", encode_link(AUDIENCE)[:-3], "ää"])
def test_what_is_no_link_is_refused(fragment: str) -> None:
    with pytest.raises(BadCap):
        decode_link(fragment)


@pytest.mark.parametrize(
    ("now_s", "code"),
    [
        (NOW - 301, "not-yet-valid"),
        (NOW - 300, None),
        (NOW + 30 * 86400 + 300, None),
        (NOW + 30 * 86400 + 301, "expired"),
    ],
)
def test_a_certificate_is_valid_within_its_window_give_or_take_five_minutes(now_s: int, code: str | None) -> None:
    result = verify_cap_cert(DEVICE, now=now_s)
    assert result.get("reason") == code
    if code is None:
        check(DEVICE, now_s)
    else:
        with pytest.raises(BadCap, match=code):
            check(DEVICE, now_s)


ABSENT = object()
#: A change to a certificate, and what is said of it; published implementations say the same.
CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (DEVICE, {"kind": "other"}, "malformed-shape"),
    (DEVICE, {"iss": ABSENT}, "malformed-shape"),
    (DEVICE, {"sub": ABSENT}, "malformed-shape"),
    (DEVICE, {"subKem": 1}, "malformed-shape"),
    (DEVICE, {"nbf": "1"}, "malformed-shape"),
    (DEVICE, {"nbf": True}, "malformed-shape"),
    (DEVICE, {"exp": 1.5}, "malformed-shape"),
    (DEVICE, {"exp": float("inf")}, "malformed-shape"),
    (DEVICE, {"nonce": "AAAA"}, "malformed-shape"),
    (DEVICE, {"nonce": "!"}, "malformed-shape"),
    (DEVICE, {"subUserId": None}, "malformed-shape"),
    (DEVICE, {"scope": []}, "malformed-shape"),
    (DEVICE, {"scope": {"ops": ["fly"], "collections": []}}, "malformed-shape"),
    (DEVICE, {"scope": {"ops": ["read"], "collections": [1]}}, "malformed-shape"),
    (DEVICE, {"scope": {"ops": ["read"], "collections": [], "paths": [1]}}, "malformed-shape"),
    (DEVICE, {"aud": [C.public]}, "non-audience-has-aud"),
    (DEVICE, {"issUserId": "00" * 16}, "iss-userid-mismatch"),
    (DEVICE, {"subUserId": "00" * 16}, "sub-userid-mismatch"),
    (DEVICE, {"exp": NOW}, "inverted-window"),
    (DEVICE, {"v": 2}, "bad-signature"),
    (DEVICE, {"more": 1}, "bad-signature"),
    (DEVICE, {"sig": ABSENT}, "bad-signature"),
    (DEVICE, {"sig": 7}, "bad-signature"),
    (AUDIENCE, {"sub": C.public}, "audience-has-sub"),
    (AUDIENCE, {"aud": []}, "audience-empty-aud"),
    (AUDIENCE, {"aud": "x"}, "audience-aud-bad-entry"),
    (AUDIENCE, {"aud": [C.public.upper()]}, "audience-aud-bad-entry"),
    (AUDIENCE, {"aud": [C.public, C.public]}, "audience-aud-dup"),
    (AUDIENCE, {"aud": [f"{number:064x}" for number in range(65)]}, "audience-aud-too-large"),
]


def changed(cert: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**cert, **change}.items() if value is not ABSENT}


@pytest.mark.parametrize(("cert", "change", "code"), CHANGES)
def test_a_changed_certificate_is_refused_for_the_same_reason_as_elsewhere(
    cert: dict[str, Any], change: dict[str, Any], code: str
) -> None:
    assert verify_cap_cert(changed(cert, change), now=NOW).get("reason") == code
    with pytest.raises(BadCap) as refused:
        check(changed(cert, change), NOW)
    assert refused.value.code == code


def test_names_of_the_wrong_length_are_no_keys() -> None:
    with pytest.raises(BadCap, match="malformed-shape"):
        check_shape(changed(DEVICE, {"iss": "00"}))


@given(st.sampled_from(CERTS), st.data())
def test_a_changed_byte_is_never_valid(cert: dict[str, Any], data: st.DataObject) -> None:
    text = bytearray(json.dumps(cert).encode())
    text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 127))
    try:
        other = json.loads(text)
    except ValueError:
        return
    if not isinstance(other, dict) or other == cert:
        return
    with pytest.raises(BadCap):
        check(other, NOW)


def scoped(cert: dict[str, Any], ops: list[str], paths: list[str] | None) -> dict[str, Any]:
    scope = {"ops": ops, "collections": ["events"]} | ({} if paths is None else {"paths": paths})
    return changed(cert, {"scope": scope})


SHARED: list[tuple[dict[str, Any], str | None]] = [
    (changed(MEMBER, {"subUserId": ABSENT}), "member-missing-sub-userid"),
    (changed(MEMBER, {"sub": A.public, "subUserId": A.user_id}), "member-self"),
    *[
        (each, None if code is None else f"{cert['kind']}-{code}")
        for cert in (MEMBER, AUDIENCE)
        for each, code in [
            (changed(cert, {"scope": {"ops": [], "collections": ["*"]}}), "wildcard-collections"),
            (changed(cert, {"scope": {"ops": [], "collections": ["a", "b"]}}), "multi-collection"),
            (changed(cert, {"scope": {"ops": [], "collections": []}}), "multi-collection"),
            (scoped(cert, ["read"], None), "members-not-denied"),
            (scoped(cert, ["read"], []), "members-not-denied"),
            (scoped(cert, ["read"], ["events/**"]), "members-not-denied"),
            (scoped(cert, ["read"], ["events/**", "!events/_members"]), None),
            (scoped(cert, ["read", "write"], ["events/**", "!events/_members"]), "keyring-not-denied"),
            (scoped(cert, ["read", "write"], ["events/**", "!events/_*"]), None),
            (scoped(cert, ["read", "write"], ["events"]), None),
            (scoped(cert, ["read"], [f"users/{A.user_id}/x"]), "private-path"),
            (scoped(cert, ["read"], ["users/{identity}"]), "private-path"),
            (scoped(cert, ["read"], [f"users/{B.user_id}"]), None),
        ]
    ],
]


@pytest.mark.parametrize(("cert", "code"), SHARED)
def test_what_is_shared_is_one_collection_without_what_is_the_owners(cert: dict[str, Any], code: str | None) -> None:
    theirs = assert_member_cap_shape if cert["kind"] == "member" else assert_audience_cap_shape
    if code is None:
        theirs(cert)
        check_shared(cert)
        return
    with pytest.raises(ValueError, match=code):
        theirs(cert)
    with pytest.raises(BadCap, match=f"^{code}$"):
        check_shared(cert)


def test_devices_need_not_keep_to_what_others_may_be_given() -> None:
    assert_cap_cert_well_formed(DEVICE)
    check_shared(DEVICE)
