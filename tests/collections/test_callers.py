from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.signed_calls import (
    ALICE,
    BOB,
    CAROL,
    HOST,
    NOW,
    READING,
    audience,
    changed,
    device,
    headers_of,
    member,
    plain,
    signed,
)

from strandline.collections.capabilities import Capabilities
from strandline.collections.errors import CollectionError
from strandline.collections.permissions import ANONYMOUS, Caller
from strandline.collections.settings import SKEW_MS, CollectionsSettings
from strandline.protocols.collections.authorization import MIN_SIGNED_BODY_BYTES, Authorizer, host_of, paths_in_scope
from strandline.protocols.collections.errors import CollectionRefusal, collection_refused
from strandline.service.http import Call, Head
from strandline.signing import certificates as caps
from strandline.signing.keys import user_id
from strandline.signing.revocations import signed_list

BODY = b'{"data":{"a":1}}'


def authorizer(settings: CollectionsSettings) -> Authorizer:
    return Authorizer(Capabilities(settings), asyncio.to_thread)


@pytest.fixture
def callers() -> Authorizer:
    return authorizer(CollectionsSettings())


def ask(callers: Authorizer, call: Call, now: int = NOW, limit: int = 0, **params: str) -> Caller:
    try:
        return callers.check_signature(call, now, params=params, max_body_bytes=limit)
    except CollectionError as error:
        raise collection_refused(error) from None


def refused(callers: Authorizer, call: Call, now: int = NOW, limit: int = 0, **params: str) -> tuple[int, str]:
    with pytest.raises(CollectionRefusal) as caught:
        ask(callers, call, now, limit, **params)
    return caught.value.status, caught.value.answer.error


UNAUTHORIZED, FORBIDDEN = (401, "Unauthorized"), (403, "Forbidden")


# --- who it is ---------------------------------------------------------------------------------------------------


def test_without_a_certificate_one_is_anonymous(callers: Authorizer) -> None:
    assert ask(callers, plain("GET", "/pull/events/a")) == ANONYMOUS
    assert ask(callers, plain("GET", "/pull/events/a", headers={"Authorization": "Bearer x"})) == ANONYMOUS
    assert ask(callers, plain("GET", "/pull/events/a", headers={"Authorization": "cap x"})) == ANONYMOUS


def test_where_nobody_may_be_anonymous_a_certificate_is_needed() -> None:
    strict = authorizer(CollectionsSettings(anonymous=False))
    assert refused(strict, plain("GET", "/pull/events/a")) == UNAUTHORIZED
    assert ask(strict, signed(device(), ALICE)).identity == ALICE.user_id


def test_a_device_acts_as_its_issuer(callers: Authorizer) -> None:
    caller = ask(callers, signed(device(ALICE, BOB), BOB))
    assert (caller.identity, caller.presenter) == (ALICE.user_id, BOB.public)
    assert caller.scope is not None
    assert caller.scope.paths == ("**",)


def test_a_member_acts_as_itself(callers: Authorizer) -> None:
    caller = ask(callers, signed(member(), BOB))
    assert (caller.identity, caller.presenter) == (BOB.user_id, BOB.public)
    assert f"delegated:{ALICE.user_id}:events" in caller.roles


def test_of_an_audience_everybody_acts_as_themselves(callers: Authorizer) -> None:
    cert = audience()
    for signer in (BOB, CAROL):
        caller = ask(callers, signed(cert, signer))
        assert (caller.identity, caller.presenter) == (user_id(signer.public), signer.public)


def test_a_certificate_for_some_is_not_for_others(callers: Authorizer) -> None:
    cert = audience(aud=[BOB.public])
    assert ask(callers, signed(cert, BOB)).identity == BOB.user_id
    assert refused(callers, signed(cert, CAROL)) == FORBIDDEN


@pytest.mark.parametrize("key", [None, "", "zz", BOB.public.upper(), BOB.public + "0", CAROL.public])
def test_of_an_audience_one_says_whose_key_it_is(callers: Authorizer, key: str | None) -> None:
    assert refused(callers, signed(audience(), BOB, X_Starfish_Pub=key)) == UNAUTHORIZED


def test_on_other_certificates_that_is_not_looked_at(callers: Authorizer) -> None:
    assert ask(callers, signed(member(), BOB, X_Starfish_Pub=CAROL.public)).presenter == BOB.public


# --- the headers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["X_Starfish_Sig", "X_Starfish_Ts", "X_Starfish_Nonce"])
def test_all_of_the_signature_is_needed(callers: Authorizer, header: str) -> None:
    assert refused(callers, signed(device(), ALICE, **{header: None})) == UNAUTHORIZED


@pytest.mark.parametrize("ts", ["", "x", "1.5", "+1", " 1", "1e3", "٣", "9" * 5000, "0x10", f"{NOW}\n"])
def test_the_time_of_a_request_is_a_whole_number(callers: Authorizer, ts: str) -> None:
    call = signed(device(), ALICE)
    call.head.headers = {**call.head.headers, b"x-starfish-ts": ts.encode()}
    assert refused(callers, call) == UNAUTHORIZED


@pytest.mark.parametrize(
    ("off", "taken"), [(-SKEW_MS, True), (SKEW_MS, True), (-SKEW_MS - 1, False), (SKEW_MS + 1, False)]
)
def test_clocks_may_differ_by_five_minutes(callers: Authorizer, off: int, taken: bool) -> None:
    call = signed(device(), ALICE, ts=NOW + off)
    if taken:
        assert ask(callers, call).identity == ALICE.user_id
    else:
        assert refused(callers, call) == UNAUTHORIZED


def test_a_certificate_may_come_without_padding_and_in_any_order(callers: Authorizer) -> None:
    cert = device()
    text = caps.encode(cert)
    assert ask(callers, signed(cert, ALICE, Authorization=f"Cap {text.rstrip('=')}")).presenter == ALICE.public
    shuffled = b64encode(msgspec.json.encode(dict(reversed(cert.items())))).decode()
    assert ask(callers, signed(cert, ALICE, Authorization=f"Cap {shuffled}")).presenter == ALICE.public


def test_a_certificate_has_a_largest_size(callers: Authorizer) -> None:
    for size, taken in ((5000, True), (8000, False)):
        cert = changed(device(), note="x" * size)
        if taken:
            assert ask(callers, signed(cert, ALICE)).presenter == ALICE.public
        else:
            assert refused(callers, signed(cert, ALICE)) == UNAUTHORIZED


@pytest.mark.parametrize("text", ["Cap ", "Cap é", "Cap e30=", "Cap " + "A" * 9000, "Cap \x80\xff"])
def test_what_is_no_certificate_is_nobodys(callers: Authorizer, text: str) -> None:
    assert refused(callers, signed(device(), ALICE, Authorization=text)) == UNAUTHORIZED


def test_headers_of_any_bytes_are_refused_and_nothing_worse(callers: Authorizer) -> None:
    for header in ("X_Starfish_Sig", "X_Starfish_Nonce", "X_Starfish_Pub", "Host", "Authorization"):
        for text in ("\xed\xa0\x80", "\xff\xfe", "Cap \xed\xa0\x80"):
            call = signed(audience(), BOB, **{header: text})
            assert (
                ask(callers, call) == ANONYMOUS
                if header == "Authorization" and text[0] != "C"
                else refused(callers, call) == UNAUTHORIZED
            )


def test_a_nonce_of_any_bytes_is_one(callers: Authorizer) -> None:
    nonce = "\xed\xa0\x80 é"
    assert ask(callers, signed(device(), ALICE, nonce=nonce)).presenter == ALICE.public
    assert refused(callers, signed(device(), ALICE, nonce=nonce)) == UNAUTHORIZED


def test_a_certificate_with_half_a_surrogate_pair_is_one_like_others(callers: Authorizer) -> None:
    cert = changed(device(), note="\ud800", scope={**READING, "paths": ["\udfff", "events/**"]})
    assert ask(callers, signed(cert, ALICE)).presenter == ALICE.public


# --- the certificate ---------------------------------------------------------------------------------------------


def test_a_certificate_is_good_for_its_time(callers: Authorizer) -> None:
    cert = device()
    late = (cert["exp"] + 300) * 1000
    assert ask(callers, signed(cert, ALICE, ts=late), late).presenter == ALICE.public
    later = late + 1001
    assert refused(callers, signed(cert, ALICE, ts=later), later) == UNAUTHORIZED
    early = (cert["nbf"] - 301) * 1000
    assert refused(callers, signed(cert, ALICE, ts=early), early) == UNAUTHORIZED


def test_a_certificate_that_somebody_has_changed_is_refused(callers: Authorizer) -> None:
    forged = {**device(ALICE, BOB, **READING), "scope": {"ops": ["read", "write"], "collections": ["*"]}}
    assert refused(callers, signed(forged, BOB)) == UNAUTHORIZED


def test_a_certificate_of_an_unknown_kind_is_refused(callers: Authorizer) -> None:
    assert refused(callers, signed(changed(device(), kind="guest"), ALICE)) == UNAUTHORIZED


def test_a_member_certificate_without_its_barriers_is_refused(callers: Authorizer) -> None:
    wide = {"ops": ["read", "write"], "collections": ["events"], "paths": ["events/**"]}
    assert refused(callers, signed(changed(member(), scope=wide), BOB)) == UNAUTHORIZED


def test_a_revoked_certificate_is_refused(callers: Authorizer) -> None:
    cert, other = device(), device()
    callers.capabilities.revocations.list.accept(signed_list(ALICE, 1, [cert]))
    assert refused(callers, signed(cert, ALICE)) == UNAUTHORIZED
    assert ask(callers, signed(other, ALICE)).presenter == ALICE.public


# --- the signature -----------------------------------------------------------------------------------------------


def test_somebody_elses_signature_is_refused(callers: Authorizer) -> None:
    assert refused(callers, signed(device(), BOB)) == UNAUTHORIZED


def test_everything_of_a_request_is_signed(callers: Authorizer) -> None:
    cert, target = device(), "/push/events/d1"
    headers = headers_of(cert, ALICE, "POST", target, BODY)
    for method, other_target, body, host in (
        ("GET", target, b"", HOST),
        ("POST", "/push/events/d2", BODY, HOST),
        ("POST", target + "?a=1", BODY, HOST),
        ("POST", "/push/events/d%31", BODY, HOST),
        ("POST", target, BODY.replace(b"1", b"2"), HOST),
        ("POST", target, BODY, "127.0.0.1:4001"),
    ):
        call = plain(method, other_target, body, {**headers, "Host": host})
        assert refused(callers, call) == UNAUTHORIZED, (method, other_target, body, host)
    assert ask(callers, plain("POST", target, BODY, headers)).presenter == ALICE.public


def test_the_order_of_the_query_is_signed(callers: Authorizer) -> None:
    headers = headers_of(device(), ALICE, "GET", "/pull/events/d1?last=1&checkpoint=2")
    assert refused(callers, plain("GET", "/pull/events/d1?checkpoint=2&last=1", headers=headers)) == UNAUTHORIZED


def test_paths_are_signed_as_they_are_sent(callers: Authorizer) -> None:
    target = "/pull/events/a%40b?collections=a%2Cb&x=%20+"
    assert ask(callers, signed(device(**READING), ALICE, target=target)).presenter == ALICE.public


def test_what_is_no_json_is_signed_without_its_body(callers: Authorizer) -> None:
    cert, target = device(), "/push/events/d1"
    for media_type, taken in (("image/png", True), ("application/json; charset=utf-8", False), ("", False)):
        headers = headers_of(cert, ALICE, "POST", target) | {"Content-Type": media_type, "Content-Length": "9"}
        call = plain("POST", target, b"something", headers)
        if taken:
            assert ask(callers, call).presenter == ALICE.public
        else:
            assert refused(callers, call) == UNAUTHORIZED


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (None, "missing Content-Length on write"),
        ("x", "invalid Content-Length"),
        ("-1", "invalid Content-Length"),
        ("", "invalid Content-Length"),
        (str(MIN_SIGNED_BODY_BYTES + 1), "request body too large"),
    ],
)
def test_a_signed_push_says_how_long_it_is(callers: Authorizer, length: str | None, text: str) -> None:
    call = signed(device(), ALICE, "POST", "/push/events/d1", BODY, Content_Length=length)
    assert refused(callers, call) == (413, text)


def test_a_signed_body_may_be_as_large_as_its_collection_allows(callers: Authorizer) -> None:
    body = b" " * (MIN_SIGNED_BODY_BYTES + 1)
    call = signed(device(), ALICE, "POST", "/push/events/d1", body)
    assert refused(callers, call, limit=1000) == (413, "request body too large")
    assert ask(callers, call, limit=len(body)).presenter == ALICE.public


def test_bytes_count_and_not_what_is_said_of_them(callers: Authorizer) -> None:
    body = b" " * (MIN_SIGNED_BODY_BYTES + 1)
    call = signed(device(), ALICE, "POST", "/push/events/d1", body, Content_Length="10")
    assert refused(callers, call) == (413, "request body too large")


@pytest.mark.parametrize(
    ("host", "forwarded", "expected"),
    [
        ("Example.ORG", None, "example.org"),
        ("example.org:80", None, "example.org"),
        ("example.org:443", None, "example.org:443"),
        ("example.org:443", "https", "example.org"),
        ("example.org:80", "https", "example.org:80"),
        ("example.org:8080", None, "example.org:8080"),
        ("[::1]:80", None, "[::1]"),
        ("[::1]:4000", None, "[::1]:4000"),
        ("", None, ""),
    ],
)
def test_the_host_is_what_browsers_say_it_is(host: str, forwarded: str | None, expected: str) -> None:
    headers = {"Host": host} | ({} if forwarded is None else {"X-Forwarded-Proto": forwarded})
    assert host_of(plain("GET", "/", headers=headers).head) == expected


# --- replays -----------------------------------------------------------------------------------------------------


def test_a_request_is_taken_once(callers: Authorizer) -> None:
    call = signed(device(), ALICE)
    ask(callers, call)
    assert refused(callers, call) == UNAUTHORIZED
    assert refused(callers, call, NOW + SKEW_MS) == UNAUTHORIZED
    assert refused(callers, call, NOW + SKEW_MS + 1) == UNAUTHORIZED


def test_a_request_that_was_refused_before_can_still_be_made(callers: Authorizer) -> None:
    call = signed(audience(aud=[BOB.public]), CAROL, nonce="n")
    assert refused(callers, call) == FORBIDDEN
    assert refused(callers, call) == FORBIDDEN, "not one of them is not remembered"


def test_the_4097th_request_of_a_key_is_taken(callers: Authorizer) -> None:
    cert = device()
    for number in range(4100):
        # Signing them all would take long, and is not what this is about.
        assert callers.capabilities._nonces.take(ALICE.public, str(number), NOW, NOW)
    assert ask(callers, signed(cert, ALICE)).presenter == ALICE.public


def test_when_no_more_can_be_remembered_one_is_told_to_come_again() -> None:
    callers = authorizer(CollectionsSettings(max_nonces=1))
    ask(callers, signed(device(), ALICE))
    with pytest.raises(CollectionRefusal) as caught:
        ask(callers, signed(device(BOB, BOB), BOB))
    assert caught.value.status == 503
    ((name, value),) = caught.value.headers
    assert name == b"retry-after"
    assert 300 <= int(value) <= 360


# --- paths -------------------------------------------------------------------------------------------------------


def test_a_certificate_for_others_needs_paths(callers: Authorizer) -> None:
    for paths in (None, []):
        scope = {"ops": ["read"], "collections": ["events"]} | ({} if paths is None else {"paths": paths})
        # Without paths it is for all of them, and those for members are never for all.
        assert refused(callers, signed(changed(member(), scope=scope), BOB)) == UNAUTHORIZED


def test_a_device_needs_no_paths(callers: Authorizer) -> None:
    cert = device(ops=["read"], collections=["events"])
    assert ask(callers, signed(cert, ALICE)).presenter == ALICE.public


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("/pull/events/d1", True),
        ("/push/events/d1", True),
        ("/list/events/d1", True),
        ("/acme/pull/events/d1", True),
        ("/v1/acme/pull/events/d1", True),
        ("/pull//events/./d1", True),
        ("/pull/%65vents/d1", True),
        ("/pull/notes/d1", False),
        ("/pull/events", False),
        ("/pull/events/_keyring", False),
        ("/pull/events/_keyring/x", False),
        ("/pull/events//_keyring/", False),
        ("/pull/events/%5Fkeyring", False),
        ("/pull/events/./_keyring", False),
        ("/pull/batch/pull", False),
        ("/pull/./events/d1", False),
    ],
)
def test_a_certificate_covers_some_paths(callers: Authorizer, path: str, covered: bool) -> None:
    cert = device(ops=["read"], collections=["events"], paths=["events/**", "!events/_keyring"])
    call = signed(cert, ALICE, target=path)
    if covered:
        assert ask(callers, call).presenter == ALICE.public
    else:
        assert refused(callers, call) == FORBIDDEN


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/batch/pull", []),
        ("/acme/batch/pull", []),
        ("/v1/acme/batch/pull", []),
        ("/pull/batch/pull", ["batch/pull"]),
        ("/v1/acme/pull/batch/pull", ["batch/pull"]),
        ("/config", ["config"]),
        ("/list/rooms/r1", ["rooms/r1"]),
        ("/pull/pull/a", ["pull/a"]),
        ("/pull/rooms//./r1/", ["rooms/r1", "rooms/./r1"]),
        ("/pull", [""]),
    ],
)
def test_a_batch_pull_is_known_wherever_it_is_mounted(path: str, expected: list[str]) -> None:
    assert paths_in_scope(path) == expected


def test_a_batch_pull_is_not_about_one_path(callers: Authorizer) -> None:
    for target in ("/batch/pull?collections=a", "/v1/acme/batch/pull?collections=a"):
        assert ask(callers, signed(member(), BOB, target=target)).identity == BOB.user_id


def test_the_identity_in_patterns_is_that_of_the_caller(callers: Authorizer) -> None:
    cert = device(ops=["read"], collections=["*"], paths=["users/{identity}/**"])
    assert ask(callers, signed(cert, ALICE, target=f"/pull/users/{ALICE.user_id}/a")).presenter == ALICE.public
    assert refused(callers, signed(cert, ALICE, target=f"/pull/users/{BOB.user_id}/a")) == FORBIDDEN


def test_the_identity_in_the_path_is_that_of_the_caller(callers: Authorizer) -> None:
    assert ask(callers, signed(device(), ALICE), identity=ALICE.user_id).presenter == ALICE.public
    assert refused(callers, signed(device(), ALICE), identity=BOB.user_id) == FORBIDDEN


# --- anything ----------------------------------------------------------------------------------------------------

SIGNATURE = [b"authorization", b"x-starfish-sig", b"x-starfish-ts", b"x-starfish-nonce", b"x-starfish-pub"]
names = st.sampled_from([*SIGNATURE, b"host", b"content-length", b"content-type", b"x-forwarded-proto"])
certificates = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(names, st.binary(max_size=80)),
    st.sampled_from(["GET", "POST"]),
    st.text(st.characters(max_codepoint=255), max_size=30),
)
def test_whatever_headers_come_the_answer_is_one_of_the_protocol(
    headers: dict[bytes, bytes], method: str, path: str
) -> None:
    call = signed(device(), ALICE)
    call = Call(Head(method, "/" + path, "", {**call.head.headers, **headers}), b"", 0.0)
    try:
        ask(authorizer(CollectionsSettings()), call)
    except CollectionRefusal as refused:
        assert refused.status in (401, 403, 413)  # noqa: PT017


@given(st.dictionaries(st.sampled_from(sorted(device())), certificates, min_size=1, max_size=3))
def test_whatever_is_in_a_certificate_the_answer_is_one_of_the_protocol(members: dict[str, Any]) -> None:
    members.pop("kind", None)
    cert = {**device(), **members}
    try:
        cert = changed(cert)
    except (ValueError, OverflowError):
        return
    try:
        ask(authorizer(CollectionsSettings()), signed(cert, ALICE))
    except CollectionRefusal as refused:
        assert refused.status in (401, 403)  # noqa: PT017


@given(st.sampled_from(["authorization", "x-starfish-sig", "x-starfish-ts", "x-starfish-nonce", "host"]), st.data())
def test_a_signed_request_with_anything_changed_is_refused(header: str, data: st.DataObject) -> None:
    call = signed(device(), ALICE)
    value = call.head.headers[header.encode()]
    # The last characters of base64 have bits that mean nothing.
    at = data.draw(st.integers(0, len(value) - 5))
    other = data.draw(st.integers(33, 126))
    altered = value[:at] + bytes([other]) + value[at + 1 :]
    assume(altered.lower() != value.lower())
    call.head.headers = {**call.head.headers, header.encode(): altered}
    try:
        assert ask(authorizer(CollectionsSettings()), call) == ANONYMOUS, "it was no certificate any more"
        assert not altered.startswith(b"Cap ")
    except CollectionRefusal as refused:
        assert refused.status == 401  # noqa: PT017


# --- vectors -----------------------------------------------------------------------------------------------------


def test_the_published_vectors_hold() -> None:
    """Requests that were signed by the published packages, with the certificate that they made."""
    vectors: dict[str, Any] = msgspec.json.decode(
        Path(__file__).parents[1].joinpath("signing/vectors.json").read_bytes()
    )
    cert, get = vectors["cap"]["device"], vectors["req"]["get"]
    headers = {
        "Host": "api.example.com",
        "Authorization": cert["header"],
        "X-Starfish-Ts": str(get["ts"]),
        "X-Starfish-Nonce": get["nonce"],
        "X-Starfish-Sig": get["sig"],
    }
    caller = ask(
        authorizer(CollectionsSettings()),
        plain("GET", "/pull/events?checkpoint=1714000000000&last=10", headers=headers),
        get["ts"],
    )
    assert caller.presenter == vectors["keys"]["A"]["pub"]
    assert caller.identity == vectors["keys"]["A"]["userId"]
