"""Regular documents and keyrings: what one client keeps on the server, each of the others finds there. Three devices of
one person share an encrypted log."""

from __future__ import annotations

from typing import Any

import pytest
from support.published_clients import ClientFailed, Person, ServerRefused, Speaker

from strandline.signing.canonical_json import digest
from strandline.signing.certificates import everything, read_only

#: The person is the first device; the others act for the person with a certificate.
LAPTOP, PHONE, TABLET = Person(1), Person(2), Person(3)
Json = dict[str, Any]


def data_of(elements: list[Json]) -> list[Any]:
    return [element["data"] for element in elements]


def conflict(client: Speaker, **given: Any) -> Json:
    with pytest.raises(ServerRefused) as caught:
        client.tell("push", **given)
    assert caught.value.status == 409
    told: Json = caught.value.told
    return {name: told[name] for name in ("error", "currentHash")}


def device(client: Speaker, url: str, person: Person) -> Json:
    """How the laptop's certificate lets a device act."""
    cap = client.tell("device", issuer=LAPTOP.keys, subject=person.keys, scope=everything())
    return {"url": url, "as_": person.with_cap(cap)}


def test_a_document_is_replaced_by_whoever_knows_its_version(
    client: Speaker, reader: Speaker, url: str, name: str
) -> None:
    where = {"url": url, "key": f"documents/{name}"}
    assert client.tell("pull_document", **where)["hash"] == ""
    first, second = {"n": 1, "s": "é ✓ 😀"}, {"n": [1.5, None, {"z": 1, "a": 2}]}
    hash = client.tell("push", data=first, **where)["hash"]
    assert hash == digest(first)
    assert conflict(reader, data=second, **where) == {"error": "hash_mismatch", "currentHash": hash}
    pulled = reader.tell("pull_document", **where)
    assert (pulled["data"], pulled["hash"]) == (first, hash)
    assert reader.tell("push", data=second, base=hash, **where)["hash"] == digest(second)
    late = conflict(client, data=first, base=hash, **where)
    assert late == {"error": "hash_mismatch", "currentHash": digest(second)}
    assert client.tell("pull_document", **where)["data"] == second


def test_a_document_is_signed_as_a_whole(client: Speaker, reader: Speaker, url: str, name: str) -> None:
    key, data = f"documents/{name}", {"members": ["ann", "ben"], "n": 1.0}
    client.tell("push", key=key, data=data, by=LAPTOP.keys, **device(client, url, LAPTOP))
    pulled = reader.tell("pull_document", key=key, url=url)
    proof = {"author": pulled["authorPubkey"], "signature": pulled["authorSignature"]}
    assert proof["author"] == LAPTOP.pub
    assert reader.tell("is_by", key=key, data=pulled["data"], **proof)
    assert not reader.tell("is_by", key=key, data={**data, "n": 2}, **proof)


def test_three_devices_share_a_keyring(client: Speaker, reader: Speaker, url: str, name: str) -> None:
    key = f"spaces/{name}"
    laptop, phone, tablet = (device(client, url, each) for each in (LAPTOP, PHONE, TABLET))

    def keys(person: Person, by: Speaker = client) -> Json:
        """The keyring as the person pulls it."""
        where = {LAPTOP: laptop, PHONE: phone, TABLET: tablet}[person]
        return person.reading(by.tell("pull_document", key=f"{key}/_keyring", **where)["data"], LAPTOP)

    # The laptop creates the keyring and lets the others in, with one client and with the other.
    created = client.tell("create_keyring", by=LAPTOP.keys, recipients=[LAPTOP.kem.public])
    client.tell("push", key=f"{key}/_keyring", data=created, **laptop)
    again = conflict(reader, key=f"{key}/_keyring", data=created, **laptop)
    assert again["currentHash"] == digest(created)
    client.tell("share", key=key, by=LAPTOP.keys, recipient=PHONE.kem.public, **laptop)
    reader.tell("share", key=key, by=LAPTOP.keys, recipient=TABLET.kem.public, **laptop)
    shared = client.tell("shared_with", key=key, by=LAPTOP.keys, **laptop)
    recipients = [each["subKem"] for each in shared["recipients"]]
    assert (shared["epoch"], recipients) == (1, [LAPTOP.kem.public, PHONE.kem.public, TABLET.kem.public])

    # Each writes, and each reads what all have written.
    client.tell("append", key=key, data={"by": "laptop"}, keys=keys(LAPTOP), **laptop)
    reader.tell("append", key=key, data={"by": "phone"}, keys=keys(PHONE, reader), **phone)
    client.tell("append", key=key, data={"by": "tablet"}, keys=keys(TABLET), **tablet)
    said = [{"by": "laptop"}, {"by": "phone"}, {"by": "tablet"}]
    for person, where in ((LAPTOP, laptop), (PHONE, phone), (TABLET, tablet)):
        options = {"verify_author": True}
        cursor = reader.tell("cursor", key=key, options=options, keys=keys(person), **where)
        assert data_of(reader.tell("cursor_pull", cursor=cursor)) == said

    # The tablet is removed: it keeps what it could read, and reads nothing that is written from now on.
    old = keys(TABLET)
    removed = reader.tell("unshare", key=key, by=LAPTOP.keys, recipients=[TABLET.kem.public], **laptop)
    assert removed["newEpoch"] == 2
    reader.tell("append", key=key, data={"by": "laptop", "later": True}, keys=keys(LAPTOP), **laptop)
    cursor = client.tell("cursor", key=key, keys=keys(PHONE), **phone)
    assert data_of(client.tell("cursor_pull", cursor=cursor)) == [*said, {"by": "laptop", "later": True}]
    with pytest.raises(ClientFailed):
        client.tell("cursor", key=key, keys=keys(TABLET), **tablet)
    cursor = client.tell("cursor", key=key, keys=old, options={"on_element_error": "skip"}, **tablet)
    assert data_of(client.tell("cursor_pull", cursor=cursor)) == said


@pytest.mark.parametrize("who", ["node", "own"])
def test_devices_are_let_in_at_once(who: str, request: pytest.FixtureRequest, url: str, name: str) -> None:
    """Each attempt fails at most because another one succeeded, so as many attempts as there are devices are enough."""
    client: Speaker = request.getfixturevalue(who)
    key, laptop = f"spaces/{name}", device(client, url, LAPTOP)
    created = client.tell("create_keyring", by=LAPTOP.keys, recipients=[LAPTOP.kem.public])
    client.tell("push", key=f"{key}/_keyring", data=created, **laptop)
    devices = [Person(number).kem.public for number in range(10, 15)]
    done = client.tell("ensure_all", key=key, by=LAPTOP.keys, recipients=devices, **laptop)
    assert done == ["added"] * len(devices)
    shared = client.tell("shared_with", key=key, by=LAPTOP.keys, **laptop)
    assert {each["subKem"] for each in shared["recipients"]} == {LAPTOP.kem.public, *devices}
    if who == "node":
        assert client.tell("ensure_all", key=key, by=LAPTOP.keys, recipients=devices[:1], **laptop) == [
            "already-present"
        ]


@pytest.mark.parametrize("who", ["node", "python"])
def test_a_document_is_pulled_with_its_keyring(who: str, request: pytest.FixtureRequest, url: str, name: str) -> None:
    client: Speaker = request.getfixturevalue(who)
    where, laptop = {"url": url, "key": f"documents/{name}"}, device(client, url, LAPTOP)
    assert client.tell("pull_document", with_keyring=True, **where)["keyring"] is None
    created = client.tell("create_keyring", by=LAPTOP.keys, recipients=[LAPTOP.kem.public])
    client.tell("push", key=f"documents/{name}/_keyring", data=created, **laptop)
    client.tell("push", data={"n": 1}, **where)
    pulled = client.tell("pull_document", with_keyring=True, **where)
    assert (pulled["data"], pulled["keyring"]["data"]) == ({"n": 1}, created)


PUBLISHED = ["node", "python"]


@pytest.mark.parametrize("other", PUBLISHED)
@pytest.mark.parametrize("who", PUBLISHED)
def test_a_list_of_members_is_kept(who: str, other: str, request: pytest.FixtureRequest, url: str, name: str) -> None:
    client, second = request.getfixturevalue(who), request.getfixturevalue(other)
    where = {"key": f"spaces/{name}", **device(client, url, LAPTOP)}
    # The published helpers expect that there is a list, as they do with a published server.
    client.tell("push", **{**where, "key": f"spaces/{name}/_members"}, data={"v": 1, "entries": []})
    scope = read_only(f"spaces/{name}")
    caps = [
        client.tell("member", issuer=LAPTOP.keys, subject=person.keys, collection=f"spaces/{name}", scope=scope)
        for person in (PHONE, TABLET)
    ]
    client.tell("add_member", cap=caps[0], **where)
    second.tell("add_member", cap=caps[1], **where)
    assert client.tell("members", **where) == [PHONE.pub, TABLET.pub]
    assert second.tell("remove_member", nonce=caps[0]["nonce"], **where) is True
    assert client.tell("members", **where) == [TABLET.pub]


@pytest.mark.parametrize("other", PUBLISHED)
@pytest.mark.parametrize("who", PUBLISHED)
def test_two_devices_merge_an_encrypted_document(
    who: str, other: str, request: pytest.FixtureRequest, url: str, name: str
) -> None:
    client, second = request.getfixturevalue(who), request.getfixturevalue(other)
    keyring = client.tell("create_keyring", by=LAPTOP.keys, recipients=[LAPTOP.kem.public, PHONE.kem.public])
    where = {"url": url, "key": f"documents/{name}"}
    laptop = client.tell("sync", keys=LAPTOP.reading(keyring, LAPTOP), **where)
    phone = second.tell("sync", keys=PHONE.reading(keyring, LAPTOP), **where)
    client.tell("sync_push", manager=laptop, data={"a": 1})
    second.tell("sync_push", manager=phone, data={"b": 2})
    assert client.tell("sync_pull", manager=laptop) == {"a": 1, "b": 2}
    stored = client.tell("pull_document", **where)["data"]
    assert stored.keys() == {"_encrypted", "_epoch"}
