"""GET /pull: bounds, what they give, and what is said of an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.collections_in_process import NOW, MakeStand, Stand, opened
from support.signed_calls import ALICE, device

from strandline.collections import Collection, FieldPermission, RateLimit
from strandline.collections.config import WRITE, AppendOnly, CollectionRateLimit, RateRule
from strandline.collections.documents import PreparedAppend
from strandline.collections.elements import NewElement
from strandline.collections.pull import AT_ONCE, PAGE, PARSED_AT_ONCE
from strandline.engine import ManualClock

#: The headers of every answer to a page whose origin is not known.
FOR_BROWSERS = {"cross-origin-resource-policy": "same-origin", "vary": "origin"}


def filled(server: Stand, count: int = 5, path: str = "events") -> None:
    """Elements with the times 1000, 1010, …"""
    for n in range(count):
        assert server.push(path, {"n": n}, 1000 + 10 * n).status == 200


def shown(server: Stand, query: str, path: str = "events") -> list[int]:
    """Which of the elements a pull gives."""
    return [item["data"]["n"] for item in server.pull(path, query).items]


@pytest.mark.parametrize(
    ("query", "elements"),
    [
        ("full=true", [0, 1, 2, 3, 4]),
        ("full=1", [0, 1, 2, 3, 4]),
        ("checkpoint=0", [0, 1, 2, 3, 4]),
        ("checkpoint=999", [0, 1, 2, 3, 4]),
        ("checkpoint=1000", [1, 2, 3, 4]),
        ("checkpoint=1005", [1, 2, 3, 4]),
        ("checkpoint=1030", [4]),
        ("checkpoint=1040", []),
        ("checkpoint=99999999999999999999999999999999", []),
        ("last=2", [3, 4]),
        ("limit=2", [3, 4]),
        ("last=5", [0, 1, 2, 3, 4]),
        ("last=1000", [0, 1, 2, 3, 4]),
        ("last=0", []),
        ("limit=1&last=4", [4]),
        ("limit=1&last=nonsense", [4]),
        ("checkpoint=1010&last=2", [3, 4]),
        ("checkpoint=1020&last=10", [3, 4]),
        ("checkpoint=1040&last=10", []),
        ("checkpoint=0&last=2", [3, 4]),
        ("checkpoint=0&full=false", [0, 1, 2, 3, 4]),
        ("last=1&full=TRUE", [4]),
    ],
)
def test_a_bound_says_which_elements_are_given(stand: MakeStand, query: str, elements: list[int]) -> None:
    server = stand(opened())
    filled(server)
    assert shown(server, query) == elements


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", "pull_bound_required"),
        ("full=yes", "pull_bound_required"),
        ("full=True", "pull_bound_required"),
        ("withKeyring=1", "pull_bound_required"),
        ("checkpoint=", "Invalid checkpoint"),
        ("checkpoint=-1", "Invalid checkpoint"),
        ("checkpoint=01", "Invalid checkpoint"),
        ("checkpoint=1.0", "Invalid checkpoint"),
        ("checkpoint=%201", "Invalid checkpoint"),
        ("checkpoint=+1", "Invalid checkpoint"),
        ("checkpoint=1e3", "Invalid checkpoint"),
        ("checkpoint=%D9%A1", "Invalid checkpoint"),
        ("checkpoint=x&limit=y", "Invalid checkpoint"),
        ("limit=x&last=y", "Invalid limit"),
        ("last=-1", "Invalid last"),
        ("last=1&full=true", "full_with_bounds"),
        ("checkpoint=0&full=1", "full_with_bounds"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(stand: MakeStand, query: str, error: str) -> None:
    server = stand(opened())
    assert server.pull("events", query).error == (400, error)
    filled(server)
    assert server.pull("events", query).error == (400, error)


def test_an_answer_says_what_the_log_is_like_and_what_time_it_is(stand: MakeStand) -> None:
    server = stand(opened(field="entries"))
    hash = server.push("events", {"n": 1}).json["hash"]
    server.clock.advance(5)
    answer = server.pull("events")
    assert answer.json == {"data": {"entries": [{"ts": NOW, "data": {"n": 1}}]}, "hash": hash, "timestamp": NOW + 5}
    assert answer.headers == {"etag": f'"{hash}"', **FOR_BROWSERS}


def test_a_document_that_is_not_there_is_an_empty_one(stand: MakeStand) -> None:
    server = stand(opened(cache_duration_ms=5000, ttl_ms=1))
    answer = server.pull("events", "last=1")
    assert (answer.status, answer.json) == (200, {"data": {"items": []}, "hash": "", "timestamp": NOW})
    assert answer.headers == FOR_BROWSERS


def test_whoever_has_the_same_version_is_told_so(stand: MakeStand) -> None:
    server = stand(opened(cache_duration_ms=1500))
    hash = server.push("events", {"n": 1}).json["hash"]
    for query in ("full=true", "last=1", "checkpoint=7"):
        answer = server.pull("events", query, if_none_match=f'"{hash}"')
        assert (answer.status, answer.body, answer.headers) == (304, b"", FOR_BROWSERS)
    for other in (hash, f'W/"{hash}"', f'"x", "{hash}"', "*", f'"{hash}" '):
        assert server.pull("events", if_none_match=other).status == 200
    assert server.pull("events", "", if_none_match=f'"{hash}"').status == 400
    server.pushed("events", {"n": 2})
    assert server.pull("events", if_none_match=f'"{hash}"').status == 200


def test_an_answer_says_for_how_long_it_may_be_kept_and_by_whom(stand: MakeStand) -> None:
    server = stand(
        opened("open", "open", cache_duration_ms=1999),
        opened("closed", "closed", cache_duration_ms=60_000, read_roles=("cap:read:*",)),
    )
    server.pushed("open", {})
    server.pushed("closed", {})
    assert server.pull("open").headers["cache-control"] == "max-age=1"
    assert server.pull("closed", cap=(device(), ALICE)).headers["cache-control"] == "private, max-age=60"


# --- what a collection allows ------------------------------------------------------------------------------------


def test_a_collection_may_refuse_full_pulls(stand: MakeStand) -> None:
    server = stand(opened(allow_full=False))
    assert server.pull("events", "full=true").error == (400, "full_not_allowed")
    assert server.pull("events", "full=true&last=1").error == (400, "full_with_bounds")


def test_a_tail_is_never_longer_than_the_collection_says(stand: MakeStand) -> None:
    server = stand(opened(max_pull_limit=2))
    filled(server)
    assert shown(server, "last=4") == shown(server, "limit=2") == [3, 4]
    assert shown(server, "last=1") == [4]
    assert shown(server, "full=true") == [0, 1, 2, 3, 4], "whoever asks for all gets all, unless that is refused"


def test_a_checkpoint_may_be_too_old(stand: MakeStand) -> None:
    server = stand(opened(max_checkpoint_age_ms=1000))
    server.pushed("events", {"n": 1})
    assert server.pull("events", f"checkpoint={NOW - 1000}").status == 200
    for checkpoint in (0, NOW - 1001):
        assert server.pull("events", f"checkpoint={checkpoint}").error == (400, "checkpoint_too_old")
    server.clock.advance(1)
    assert server.pull("events", f"checkpoint={NOW - 1000}").error == (400, "checkpoint_too_old")
    assert server.pull("events", "last=1").status == 200


def test_a_document_that_was_not_appended_to_for_too_long_is_not_shown(stand: MakeStand) -> None:
    server = stand(opened(ttl_ms=1000))
    server.pushed("events", {"n": 1})
    hash = server.pull("events").json["hash"]
    server.clock.advance(1000)
    assert len(server.pull("events").items) == 1
    server.clock.advance(1)
    expired = server.pull("events", if_none_match=f'"{hash}"')
    assert (expired.status, expired.json) == (200, {"data": {}, "hash": "", "timestamp": NOW + 1001})
    assert expired.headers == FOR_BROWSERS
    server.pushed("events", {"n": 2})
    assert len(server.pull("events").items) == 2, "nothing was deleted"


def test_an_old_time_of_a_client_lets_a_document_expire_and_the_time_0_never_does(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}", ttl_ms=1000))
    server.push("events/a", {}, 5)
    server.push("events/b", {}, 0)
    assert server.pull("events/a").json["data"] == {}
    assert len(server.pull("events/b").items) == 1


def test_fields_that_only_others_may_see_are_left_out_of_every_element(stand: MakeStand) -> None:
    permissions = {"secret": FieldPermission(read_roles=("device:root",)), "free": FieldPermission(read_roles=())}
    server = stand(opened(field_permissions=permissions, read_roles=("public", "cap:read:*")))
    server.pushed("events", {"a": 1, "secret": 2, "free": 3}, {"a": {"secret": 4}}, author=ALICE)
    first, second = server.pull("events").items
    assert first["data"] == {"a": 1, "free": 3}
    assert second["data"] == {"a": {"secret": 4}}, "only fields of the element itself"
    assert first["authorPubkey"] == ALICE.public
    closed = opened("closed", "events", field_permissions=permissions, read_roles=("cap:read:*",))
    other = stand(closed)
    other.pushed("events", {"secret": 2})
    assert other.pull("events", cap=(device(), ALICE)).items[0]["data"] == {"secret": 2}


def test_the_array_itself_may_be_hidden(stand: MakeStand) -> None:
    server = stand(opened(field_permissions={"items": FieldPermission(read_roles=("nobody",))}))
    hash = server.push("events", {"n": 1}).json["hash"]
    assert server.pull("events").json == {"data": {}, "hash": hash, "timestamp": NOW}


def test_one_pull_too_many_is_refused(stand: MakeStand) -> None:
    limits = CollectionRateLimit(pull=RateRule(max_requests=1, bucket="ip"))
    server = stand(opened(rate_limit=limits), rate_limit=RateLimit(window_ms=1000, max_requests=100))
    assert server.pull("events", peer="10.0.0.1").status == 200
    assert server.pull("events", peer="10.0.0.1").error == (429, "Rate limit exceeded")
    assert server.pull("events", peer="10.0.0.2").status == 200


def test_who_may_not_read_is_turned_away_before_anything_is_looked_at(stand: MakeStand) -> None:
    server = stand(Collection(name="e", storage_path="e", read_roles=("admin",), append_only=AppendOnly()))
    for query in ("", "full=true", "last=x"):
        assert server.pull("e", query).error == (403, "Forbidden")


# --- long logs ---------------------------------------------------------------------------------------------------


def test_pulls_of_a_long_log_are_those_of_a_list(stand: MakeStand, tmp_path: Path) -> None:
    """Sealed, half sealed or in memory, in pages or at once."""
    count = AT_ONCE + PAGE + 7
    server = stand(opened(), opened("paged", "events", max_pull_limit=1500), path=tmp_path / "same")
    fill(server, count)
    check(server, count)
    server.engine.seal()
    check(server, count)
    server.engine.close()
    reopened = stand(opened(), path=tmp_path / "same", clock=ManualClock(NOW + 10_000))
    check(reopened, count)
    fill(reopened, count + 30, begin=count)
    check(reopened, count + 30)


def fill(server: Stand, end: int, begin: int = 0) -> None:
    path = server.context.collections.namespaces[""].resolve("events", WRITE)
    for n in range(begin, end):
        data = b'{"n":%d}' % n
        server.context.documents.append(PreparedAppend(path, NewElement(data, data, None), n + 1, None, None), NOW)
    server.engine.flush()


def check(server: Stand, count: int) -> None:
    """Element n has the time n + 1."""
    everything = list(range(count))
    assert shown(server, "full=true") == everything
    for checkpoint in (1, 5, count // 2, count - 1, count, count + 1):
        assert shown(server, f"checkpoint={checkpoint}") == everything[checkpoint:]
        assert shown(server, f"checkpoint={checkpoint}&last=3") == everything[checkpoint:][-3:]
    for last in (1, 999, 1000, 1001, 2500, count, count + 5):
        assert shown(server, f"last={last}") == everything[-last:]


def test_elements_that_were_deleted_are_gone_and_the_hash_is_another(stand: MakeStand) -> None:
    server = stand(opened(path="events-1"))
    hashes = [server.push("events-1", {"n": n}, n + 1).json["hash"] for n in range(4)]
    server.engine.log("events-1").delete(seqs=[2]).wait()
    assert shown(server, "full=true", "events-1") == [0, 2, 3]
    assert server.pull("events-1").json["hash"] != hashes[3]
    assert shown(server, "last=2", "events-1") == [2, 3]
    assert server.ask("POST", "/v0/topics/events-1/delete", {"before_seq": 100}).status == 409
    server.engine.log("events-1").delete(before=100).wait()
    assert server.pull("events-1").json == {"data": {"items": []}, "hash": "", "timestamp": NOW}
    assert server.push("events-1", {}, 4).error == (409, "non_monotonic_timestamp"), "times rise for ever"


def test_what_is_kept_of_an_answer_is_never_given_for_another(stand: MakeStand) -> None:
    """Answers of some size are remembered: by what was asked, by whom, and what the log was like."""
    permissions = {"secret": FieldPermission(read_roles=("cap:read:*",))}
    text = "x" * 2000
    namespaces = {"ns": (opened("some", "events", field_permissions=permissions),)}
    server = stand(opened("all", "events"), namespaces=namespaces)
    server.pushed("events", {"n": 1, "secret": text})
    for _ in range(2):
        assert server.pull("events").items[0]["data"]["secret"] == text
        assert "secret" not in server.get("/ns/pull/events?full=true").items[0]["data"]
    server.pushed("events", {"n": 2, "secret": text})
    assert len(server.pull("events").items) == 2
    other: Any = server.pull("events", "last=1").items
    assert [item["data"]["n"] for item in other] == [2]


def test_many_elements_without_a_field_are_parsed_elsewhere(stand: MakeStand) -> None:
    permissions = {"secret": FieldPermission(read_roles=("admin",))}
    server = stand(opened(field_permissions=permissions))
    fill(server, PARSED_AT_ONCE + 50)
    server.push("events", {"n": PARSED_AT_ONCE + 50, "secret": 1})
    assert shown(server, "full=true") == list(range(PARSED_AT_ONCE + 51))
    assert server.pull("events", "last=1").items[0]["data"] == {"n": PARSED_AT_ONCE + 50}
