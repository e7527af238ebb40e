"""What published clients do with a server, from the first append to shared and encrypted logs. This project's own
client does the same, and each reads what the others have written."""

from __future__ import annotations

from time import time
from typing import Any

import pytest
from support.published_clients import AuthorRefused, ClientFailed, Person, ServerRefused, Speaker

from strandline.client import Client
from strandline.signing.canonical_json import digest
from strandline.signing.certificates import read_only

ALICE, BOB, CAROL = Person(1), Person(2), Person(3)
Json = dict[str, Any]


def data_of(elements: list[Json]) -> list[Any]:
    return [element["data"] for element in elements]


def times_of(elements: list[Json]) -> list[int]:
    return [element["ts"] for element in elements]


def refused(client: Speaker, what: str, **given: Any) -> tuple[int, str]:
    with pytest.raises(ServerRefused) as caught:
        client.tell(what, **given)
    return caught.value.error


# --- appending -----------------------------------------------------------------------------------------------------


def test_elements_are_appended_and_pulled(client: Speaker, url: str, name: str, alice: Json) -> None:
    where = {"url": url, "as_": alice, "key": f"notes/{name}"}
    said = [
        {"msg": "a"},
        {"msg": "héllo ✓ 😀", "n": [1, 2.5, -0.0, 1e21, None, True]},
        {"z": {"b": 1, "a": "\u2028\n"}},
    ]
    before = int(time() * 1000)
    done = [client.tell("append", data=data, **where) for data in said]
    times = [each["timestamp"] for each in done]
    assert before <= times[0] < times[1] < times[2]
    assert [each["hash"] for each in done] == [digest({"n": count, "last": data}) for count, data in enumerate(said, 1)]
    pulled = client.tell("pull", bounds={"full": True}, **where)
    assert data_of(pulled) == said
    assert times_of(pulled) == times
    assert {element["authorPubkey"] for element in pulled} == {ALICE.pub}


def test_a_client_gives_times_and_is_told_when_they_do_not_fit(
    client: Speaker, url: str, name: str, alice: Json
) -> None:
    where = {"url": url, "as_": alice, "key": f"notes/{name}"}
    assert client.tell("append", data={"n": 0}, ts=0, **where)["timestamp"] == 0
    assert client.tell("append", data={"n": 1}, ts=1000, **where)["timestamp"] == 1000
    for late in (1000, 999):
        assert refused(client, "append", data={"n": 2}, ts=late, **where) == (409, "non_monotonic_timestamp")
    ahead = int(time() * 1000) + 3_600_000
    assert refused(client, "append", data={"n": 2}, ts=ahead, **where) == (400, "ts is too far in the future")
    assert client.tell("append", data={"n": 2}, **where)["timestamp"] > 1000
    assert data_of(client.tell("pull", bounds={"full": True}, **where)) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_many_appends_at_once_all_get_a_time_of_their_own(client: Speaker, url: str, name: str, alice: Json) -> None:
    where = {"url": url, "as_": alice, "key": f"notes/{name}"}
    done = client.tell("append_many", datas=[{"n": number} for number in range(20)], **where)
    times = {each["timestamp"]: {"n": number} for number, each in enumerate(done)}
    assert len(times) == 20
    pulled = client.tell("pull", bounds={"full": True}, **where)
    assert [(element["ts"], element["data"]) for element in pulled] == sorted(times.items())


def test_a_document_that_is_full_says_so(client: Speaker, url: str, name: str) -> None:
    where = {"url": url, "key": f"short/{name}"}
    for number in (1, 2):
        client.tell("append", data={"n": number}, ts=number, **where)
    with pytest.raises(ServerRefused) as caught:
        client.tell("append", data={"n": 3}, ts=1, **where)
    assert caught.value.status == 409
    assert caught.value.told == {"error": "append_limit_exceeded", "limit": 2}


def test_everybody_appends_where_they_may_and_says_who_they_are_where_they_must(
    client: Speaker, url: str, name: str, alice: Json
) -> None:
    board, inbox = f"board/{name}", f"inbox/{name}"
    client.tell("append", url=url, key=board, data={"n": 1})
    assert client.tell("pull", url=url, key=board, bounds={"full": True})[0]["data"] == {"n": 1}
    missing = (400, "append requires authorPubkey and authorSignature")
    assert refused(client, "append", url=url, key=inbox, data={"n": 1}) == missing
    client.tell("append_anonymous", url=url, key=inbox, data={"n": 2}, signer=BOB.keys)
    [element] = client.tell("pull", url=url, key=inbox, as_=alice, bounds={"last": 5})
    assert (element["data"], element["authorPubkey"]) == ({"n": 2}, BOB.pub)
    assert refused(client, "pull", url=url, key=inbox, bounds={"last": 5}) == (403, "Forbidden")


def test_data_is_checked(client: Speaker, url: str, name: str) -> None:
    with pytest.raises(ServerRefused) as caught:
        client.tell("append", url=url, key=f"typed/{name}", data={"n": "x"})
    assert caught.value.status == 400
    assert caught.value.told["error"].startswith("Schema validation failed: ")
    assert (caught.value.told["path"], caught.value.told["validator"]) == (["n"], "type")
    client.tell("append", url=url, key=f"typed/{name}", data={"n": 1})


def test_some_fields_are_not_for_everybody(client: Speaker, url: str, name: str) -> None:
    where = {"url": url, "key": f"fields/{name}"}
    denied = (403, "Field 'kept' is not writable with your roles")
    assert refused(client, "append", data={"kept": 1}, **where) == denied
    client.tell("append", data={"shown": 1, "hidden": 2}, **where)
    assert data_of(client.tell("pull", bounds={"full": True}, **where)) == [{"shown": 1}]


def test_what_is_not_kept_is_told(client: Speaker, url: str, name: str) -> None:
    where = {"url": url, "key": f"told/{name}"}
    done = client.tell("append", data={"n": 1}, ts=7, **where)
    assert done == {"hash": digest({"n": 1}), "timestamp": 7}
    assert client.tell("pull", bounds={"full": True}, **where) == []
    with Client(url) as topics:
        events = [record.data for record in topics.topic("told-events").read()]
    event = {"collection": "told", "hash": done["hash"], "timestamp": 7, "params": {"id": name}, "body": {"n": 1}}
    assert [each for each in events if each["params"] == {"id": name}] == [event]


# --- pulling -------------------------------------------------------------------------------------------------------


def filled(client: Speaker, url: str, key: str, *times: int) -> Json:
    """Where elements with these times are."""
    for ts in times:
        client.tell("append", url=url, key=key, data={"n": ts}, ts=ts)
    return {"url": url, "key": key}


def test_pulls_have_bounds(client: Speaker, url: str, name: str) -> None:
    where = filled(client, url, f"board/{name}", 10, 20, 30, 40)
    wanted: list[tuple[Json, list[int]]] = [
        ({"full": True}, [10, 20, 30, 40]),
        ({"since": 20}, [30, 40]),
        ({"since": 25}, [30, 40]),
        ({"since": 40}, []),
        ({"last": 2}, [30, 40]),
        ({"last": 9}, [10, 20, 30, 40]),
        ({"last": 0}, []),
        ({"limit": 1}, [40]),
        ({"since": 10, "last": 2}, [30, 40]),
        ({"since": 30, "limit": 5}, [40]),
    ]
    for bounds, times in wanted:
        pulled = client.tell("pull", bounds=bounds, **where)
        assert (bounds, times_of(pulled)) == (bounds, times)
        assert data_of(pulled) == [{"n": ts} for ts in times]


def test_a_pull_without_a_document_is_empty(client: Speaker, url: str, name: str) -> None:
    assert client.tell("pull", url=url, key=f"board/{name}", bounds={"full": True}) == []


def test_bounds_that_make_no_sense_are_refused(client: Speaker, url: str, name: str) -> None:
    where = {"url": url, "key": f"board/{name}"}
    for bounds in ({"full": True, "last": 1}, {"last": -1}, {"since": -1}):
        with pytest.raises(ClientFailed):
            client.tell("pull", bounds=bounds, **where)
    if client.name != "strandline":
        assert refused(client, "pull", bounds={"append_field": "items"}, **where) == (400, "pull_bound_required")
    assert refused(client, "pull", url=url, key=f"pages/{name}", bounds={"full": True}) == (400, "full_not_allowed")
    assert refused(client, "pull", url=url, key=f"recent/{name}", bounds={"since": 1}) == (400, "checkpoint_too_old")
    assert refused(client, "pull", url=url, key="board/sp%20ce", bounds={"full": True}) == (
        400,
        "Invalid path parameter",
    )


def test_elements_have_the_name_that_the_collection_gives_them(client: Speaker, url: str, alice: Json) -> None:
    where = {"url": url, "as_": alice, "key": "flat"}
    done = client.tell("append", data={"by": client.name}, **where)
    [element] = client.tell("pull", bounds={"append_field": "entries", "last": 1}, **where)
    assert (element["ts"], element["data"]) == (done["timestamp"], {"by": client.name})


def test_a_document_whose_time_is_over_is_empty(client: Speaker, url: str, name: str) -> None:
    where = filled(client, url, f"fleeting/{name}", 1000)
    assert client.tell("pull", bounds={"full": True}, **where) == []
    client.tell("append", data={"n": 2}, **where)
    assert data_of(client.tell("pull", bounds={"full": True}, **where)) == [{"n": 1000}, {"n": 2}]


def test_collections_that_are_given_part_by_part_are_not_cut(client: Speaker, url: str, name: str) -> None:
    where = filled(client, url, f"pages/{name}", 1, 2, 3, 4, 5, 6, 7)
    assert times_of(client.tell("pull", bounds={"last": 9}, **where)) == [5, 6, 7]
    assert times_of(client.tell("pull", bounds={"since": 0, "last": 2}, **where)) == [6, 7]
    # A cursor goes on where the last pull has ended, and so gets everything.
    cursor = client.tell("cursor", options={"since": 1}, **where)
    told: list[int] = []
    for _ in range(4):
        told += times_of(client.tell("cursor_pull", cursor=cursor))
    assert told == [2, 3, 4, 5, 6, 7]
    lenient = filled(client, url, f"lenient/{name}", 1, 2, 3, 4, 5, 6, 7)
    assert times_of(client.tell("pull", bounds={"since": 2}, **lenient)) == [3, 4, 5, 6, 7]


# --- batches -------------------------------------------------------------------------------------------------------


def test_many_documents_are_pulled_at_once(client: Speaker, url: str, name: str, alice: Json) -> None:
    for letter, times in (("a", (1, 2, 3)), ("b", (5,))):
        filled(client, url, f"board/{name}{letter}", *times)
    client.tell("append", url=url, as_=alice, key=f"notes/{name}", data={"n": 1}, ts=9)
    asked: Json = {
        "names": ["board", "notes", "nowhere"],
        "params": {
            "board": [{"id": f"{name}a"}, {"id": f"{name}b"}, {"id": f"{name}c"}],
            "notes": [{"id": name}],
            "nowhere": [{}],
        },
        "append_params": {
            "board": [{"last": 2}, {"since": 0}, {"limit": 1}],
            "notes": [{"since": 8}],
            "nowhere": [{"last": 1}],
        },
    }
    told = client.tell("batch", url=url, as_=alice, **asked)["collections"]
    assert [times_of(entry["data"]["items"]) for entry in told["board"]] == [[2, 3], [5], []]
    assert told["board"][0]["hash"] == digest({"n": 3, "last": {"n": 3}})
    assert times_of(told["notes"][0]["data"]["items"]) == [9]
    assert told["nowhere"] == [{"error": "Collection not found"}]
    nobody = client.tell("batch", url=url, **asked)["collections"]
    assert times_of(nobody["board"][0]["data"]["items"]) == [2, 3]
    assert nobody["notes"] == [{"error": "Forbidden"}]


def test_many_documents_of_one_collection(client: Speaker, url: str, name: str) -> None:
    filled(client, url, f"board/{name}", 1, 2)
    requests = [
        {"params": {"id": name}, "options": {"last": 1}},
        {"params": {"id": name}, "options": {"since": 0}},
        {"params": {"id": "sp ace"}, "options": {"last": 1}},
        {"params": {}, "options": {"last": 1}},
    ]
    told = client.tell("batch_many", url=url, name="board", requests=requests)
    assert [times_of(each) for each in told[:2]] == [[2], [1, 2]]
    assert told[2:] == [{"error": "Invalid path parameter"}, {"error": "Missing required path parameter"}]


@pytest.mark.parametrize("collection", ["notes", "board"])
@pytest.mark.parametrize("client", ["python", "node"], indirect=True)
def test_an_append_whose_answer_was_lost_is_sent_again(
    client: Speaker, url: str, name: str, alice: dict[str, Any], collection: str
) -> None:
    """The wrappers of the published clients repeat a request with the same signature. The board does not check it."""
    where = {"url": url, "as_": alice, "key": f"{collection}/{name}"}
    answer = client.tell("append_lossy", data={"n": 1}, **where)
    assert answer["hash"] == digest({"n": 1, "last": {"n": 1}})
    assert times_of(client.tell("pull", bounds={"full": True}, **where)) == [answer["timestamp"]]


def test_a_batch_asks_for_so_much_and_no_more(client: Speaker, url: str, name: str) -> None:
    many = {"params": {"id": name}, "options": {"last": 1000}}
    error = refused(client, "batch_many", url=url, name="board", requests=[many] * 11)
    assert error == (400, "batch_append_limit_exceeded")
    error = refused(client, "batch_many", url=url, name="board", requests=[{**many, "options": {"last": 1}}] * 101)
    assert error == (400, "Too many collections")


# --- cursors -------------------------------------------------------------------------------------------------------


def test_a_cursor_starts_cold_and_goes_on_warm(client: Speaker, url: str, name: str, alice: Json) -> None:
    where = {"url": url, "as_": alice, "key": f"notes/{name}"}
    for ts in (1, 2):
        client.tell("append", data={"n": ts}, ts=ts, **where)
    cursor = client.tell("cursor", options={"verify_author": True}, **where)
    assert times_of(client.tell("cursor_pull", cursor=cursor)) == [1, 2]
    assert client.tell("cursor_pull", cursor=cursor) == []
    client.tell("append", data={"n": 3}, ts=3, **where)
    assert times_of(client.tell("cursor_pull", cursor=cursor)) == [3]
    assert client.tell("cursor_checkpoint", cursor=cursor) == 3

    kept = client.tell("cursor_items", cursor=cursor)
    assert times_of(kept) == [1, 2, 3]
    client.tell("append", data={"n": 4}, ts=4, **where)
    options = {"initial_items": kept, "verify_author": {"expected_author_pubkey": ALICE.pub.upper()}}
    warm = client.tell("cursor", options=options, **where)
    assert times_of(client.tell("cursor_pull", cursor=warm)) == [4]
    assert times_of(client.tell("cursor_items", cursor=warm)) == [1, 2, 3, 4]
    behind = client.tell("cursor", options={"since": 2}, **where)
    assert times_of(client.tell("cursor_pull", cursor=behind)) == [3, 4]


def test_a_cursor_accepts_whom_it_should(client: Speaker, url: str, name: str, alice: Json) -> None:
    key = f"inbox/{name}"
    where = {"url": url, "as_": alice, "key": key}
    client.tell("append_anonymous", url=url, key=key, data={"n": 1}, signer=BOB.keys)
    [first] = times_of(client.tell("pull", bounds={"last": 1}, **where))
    strict = client.tell("cursor", options={"verify_author": {"expected_author_pubkey": CAROL.pub}}, **where)
    with pytest.raises(AuthorRefused) as caught:
        client.tell("cursor_pull", cursor=strict)
    assert caught.value.ts == first
    assert client.tell("cursor_checkpoint", cursor=strict) == 0

    client.tell("append_anonymous", url=url, key=key, data={"n": 2}, signer=CAROL.keys)
    [second] = times_of(client.tell("pull", bounds={"last": 1}, **where))
    options = {"verify_author": {"expected_author_pubkey": CAROL.pub}, "on_element_error": "skip"}
    skipping = client.tell("cursor", options=options, **where)
    assert times_of(client.tell("cursor_pull", cursor=skipping)) == [second]
    assert client.tell("cursor_checkpoint", cursor=skipping) == second


def test_elements_without_an_author_are_not_accepted_where_one_is_wanted(client: Speaker, url: str, name: str) -> None:
    where = filled(client, url, f"board/{name}", 5)
    cursor = client.tell("cursor", options={"verify_author": True}, **where)
    with pytest.raises(AuthorRefused):
        client.tell("cursor_pull", cursor=cursor)


# --- who may do what -----------------------------------------------------------------------------------------------


def test_a_diary_is_its_owners(client: Speaker, url: str, alice: Json) -> None:
    mine, yours = f"users/{ALICE.user_id}/diary", f"users/{BOB.user_id}/diary"
    client.tell("append", url=url, as_=alice, key=mine, data={"by": client.name})
    assert client.tell("pull", url=url, as_=alice, key=mine, bounds={"last": 1})[0]["data"] == {"by": client.name}
    assert refused(client, "pull", url=url, as_=alice, key=yours, bounds={"last": 1}) == (403, "Forbidden")
    assert refused(client, "append", url=url, as_=alice, key=yours, data={}) == (403, "Forbidden")
    assert refused(client, "pull", url=url, key=mine, bounds={"last": 1}) == (403, "Forbidden")


def test_a_device_does_what_its_certificate_says(client: Speaker, url: str, name: str) -> None:
    scope = {"ops": ["read"], "collections": ["notes"], "paths": [f"notes/{name}"]}
    cap = client.tell("device", issuer=ALICE.keys, subject=BOB.keys, scope=scope)
    where = {"url": url, "as_": BOB.with_cap(cap)}
    assert client.tell("pull", key=f"notes/{name}", bounds={"last": 1}, **where) == []
    assert refused(client, "pull", key=f"notes/{name}x", bounds={"last": 1}, **where) == (403, "Forbidden")
    assert refused(client, "append", key=f"notes/{name}", data={"n": 1}, **where) == (403, "Forbidden")


def test_a_device_that_may_only_read_a_diary_does_not_write_it(client: Speaker, url: str) -> None:
    scope = {"ops": ["read"], "collections": ["diary"], "paths": ["users/{identity}/**"]}
    cap = client.tell("device", issuer=ALICE.keys, subject=BOB.keys, scope=scope)
    where = {"url": url, "as_": BOB.with_cap(cap), "key": f"users/{ALICE.user_id}/diary"}
    client.tell("pull", bounds={"last": 1}, **where)
    assert refused(client, "append", data={"n": 1}, **where) == (403, "Forbidden")


def test_a_certificate_is_no_use_to_others(client: Speaker, url: str, name: str, alice: Json) -> None:
    if client.name == "strandline":
        with pytest.raises(ClientFailed, match="the certificate is for the key"):
            client.tell("pull", url=url, as_=BOB.with_cap(alice["cap"]), key=f"notes/{name}", bounds={"last": 1})
        return
    stolen = {"url": url, "as_": BOB.with_cap(alice["cap"]), "key": f"notes/{name}"}
    assert refused(client, "pull", bounds={"last": 1}, **stolen) == (401, "Unauthorized")
    changed = {**alice["cap"], "exp": alice["cap"]["exp"] + 1}
    forged = {"url": url, "as_": ALICE.with_cap(changed), "key": f"notes/{name}"}
    assert refused(client, "append", data={"n": 1}, **forged) == (401, "Unauthorized")


def test_a_link_to_read_is_not_one_to_write(client: Speaker, url: str, name: str) -> None:
    link = client.tell("link", issuer=ALICE.keys, collection="notes", scope=read_only("notes"))
    carol = {"url": url, "as_": CAROL.with_link(link), "key": f"notes/{name}"}
    assert client.tell("pull", bounds={"full": True}, **carol) == []
    assert refused(client, "append", data={"n": 1}, **carol) == (403, "Forbidden")


# --- namespaces ----------------------------------------------------------------------------------------------------


def test_a_namespace_has_its_own_collections(client: Speaker, url: str, name: str, alice: Json) -> None:
    where = {"url": url, "as_": alice, "namespace": "team", "key": f"chat/{name}"}
    done = client.tell("append", data={"n": 1}, **where)
    [element] = client.tell("pull", bounds={"since": done["timestamp"] - 1}, **where)
    assert element["data"] == {"n": 1}
    cursor = client.tell("cursor", options={"verify_author": True}, **where)
    assert data_of(client.tell("cursor_pull", cursor=cursor)) == [{"n": 1}]
    asked = {"names": ["chat"], "params": {"chat": [{"room": name}]}, "append_params": {"chat": [{"last": 1}]}}
    told = client.tell("batch", url=url, as_=alice, namespace="team", **asked)["collections"]
    assert told["chat"][0]["data"]["items"][0]["data"] == {"n": 1}
    with pytest.raises(ServerRefused) as caught:
        client.tell("append", data={"n": 1}, url=url, as_=alice, key=f"chat/{name}")
    assert caught.value.status == 404


# --- the server itself ---------------------------------------------------------------------------------------------


def test_the_configuration_is_told(client: Speaker, url: str) -> None:
    told = client.tell("config", url=url)
    by_name = {each["name"]: each for each in told["collections"]}
    assert by_name["pages"]["appendOnly"]["maxPullLimit"] == 3
    assert by_name["secret"]["encryption"] == "delegated"
    assert [each["name"] for each in told["namespaces"]["team"]["collections"]] == ["chat"]
