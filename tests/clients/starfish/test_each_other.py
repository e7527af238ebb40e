"""What one client writes, shares and encrypts, each of the others reads: the published ones and this project's own."""

from __future__ import annotations

from typing import Any

import pytest
from support.published_clients import ClientFailed, Person, ServerRefused, Speaker

from strandline.signing.certificates import read_only, writer

ALICE, BOB, CAROL = Person(1), Person(2), Person(3)
Json = dict[str, Any]


def data_of(elements: list[Json]) -> list[Any]:
    return [element["data"] for element in elements]


def refused(client: Speaker, what: str, **given: Any) -> tuple[int, str]:
    with pytest.raises(ServerRefused) as caught:
        client.tell(what, **given)
    return caught.value.error


def test_a_member_reads_and_writes_what_is_shared(
    client: Speaker, reader: Speaker, url: str, name: str, alice: Json
) -> None:
    cap = client.tell("member", issuer=ALICE.keys, subject=BOB.keys, collection="notes", scope=writer("notes"))
    bob = {"url": url, "as_": BOB.with_cap(cap)}
    client.tell("append", url=url, as_=alice, key=f"notes/{name}", data={"n": 1})
    reader.tell("append", key=f"notes/{name}", data={"n": 2}, **bob)
    pulled = reader.tell("pull", key=f"notes/{name}", bounds={"full": True}, **bob)
    assert [(element["data"], element["authorPubkey"]) for element in pulled] == [
        ({"n": 1}, ALICE.pub),
        ({"n": 2}, BOB.pub),
    ]
    assert refused(reader, "pull", key="notes/_members", bounds={"full": True}, **bob) == (403, "Forbidden")
    assert refused(reader, "append", key="notes/_keyring", data={}, **bob) == (403, "Forbidden")
    assert refused(reader, "pull", key=f"secret/{name}", bounds={"full": True}, **bob) == (403, "Forbidden")


@pytest.mark.parametrize("named", [False, True], ids=["anybody", "named"])
def test_a_link_is_followed_with_ones_own_key(
    client: Speaker, reader: Speaker, url: str, name: str, alice: Json, named: bool
) -> None:
    audience = [CAROL.pub] if named else None
    link = client.tell("link", issuer=ALICE.keys, collection="notes", scope=writer("notes"), audience=audience)
    carol = {"url": url, "as_": CAROL.with_link(link), "key": f"notes/{name}"}
    reader.tell("append", data={"n": 1}, **carol)
    [element] = reader.tell("pull", bounds={"full": True}, **carol)
    assert (element["data"], element["authorPubkey"]) == ({"n": 1}, CAROL.pub)
    bob = {"url": url, "as_": BOB.with_link(link), "key": f"notes/{name}"}
    if not named:
        reader.tell("append", data={"n": 2}, **bob)
    elif reader.name == "strandline":
        with pytest.raises(ClientFailed, match="the certificate's audience does not include the key"):
            reader.tell("append", data={"n": 2}, **bob)
    else:
        assert refused(reader, "append", data={"n": 2}, **bob) == (403, "Forbidden")


def test_a_passphrase_is_the_same_person_everywhere(client: Speaker, reader: Speaker) -> None:
    person = client.tell("root", passphrase="correct horse battery")
    assert person["userId"] == reader.tell("root", passphrase="correct horse battery")["userId"]


def test_what_is_encrypted_is_read_by_those_who_have_a_key(
    client: Speaker, reader: Speaker, url: str, name: str, alice: Json
) -> None:
    keyring = client.tell("create_keyring", by=ALICE.keys, recipients=[ALICE.kem.public, BOB.kem.public])
    where = {"url": url, "as_": alice, "key": f"secret/{name}"}
    said = [{"msg": "secret", "n": 1}, {"msg": "héllo ✓ 😀"}]
    for data in said:
        client.tell("append", data=data, keys=ALICE.reading(keyring, ALICE), **where)
    stored = reader.tell("pull", bounds={"full": True}, **where)
    assert all(element["data"].keys() == {"_encrypted", "_epoch"} for element in stored)

    cap = client.tell("member", issuer=ALICE.keys, subject=BOB.keys, collection="secret", scope=read_only("secret"))
    bob = {"url": url, "as_": BOB.with_cap(cap), "key": f"secret/{name}"}
    options = {"verify_author": {"expected_author_pubkey": ALICE.pub}, "persist_encrypted": True}
    keys = BOB.reading(keyring, ALICE)
    cursor = reader.tell("cursor", options=options, keys=keys, **bob)
    assert data_of(reader.tell("cursor_pull", cursor=cursor)) == said
    assert data_of(reader.tell("cursor_items", cursor=cursor)) == data_of(stored)
    assert data_of(reader.tell("cursor_decrypted", cursor=cursor)) == said

    kept = reader.tell("cursor_items", cursor=cursor)
    client.tell("append", data={"n": 3}, keys=ALICE.reading(keyring, ALICE), **where)
    warm = reader.tell("cursor", options={**options, "initial_items": kept}, keys=keys, **bob)
    assert data_of(reader.tell("cursor_decrypted", cursor=warm)) == said
    assert data_of(reader.tell("cursor_pull", cursor=warm)) == [{"n": 3}]


def test_a_new_epoch_leaves_somebody_out(client: Speaker, reader: Speaker, url: str, name: str, alice: Json) -> None:
    first = client.tell("create_keyring", by=ALICE.keys, recipients=[ALICE.kem.public, BOB.kem.public])
    where = {"url": url, "as_": alice, "key": f"secret/{name}"}
    client.tell("append", data={"n": 1}, keys=ALICE.reading(first, ALICE), **where)
    second = reader.tell("rotate", document=first, by=ALICE.keys, retained=[ALICE.kem.public])
    reader.tell("append", data={"n": 2}, keys=ALICE.reading(second, ALICE), **where)

    both = client.tell("cursor", keys=ALICE.reading(second, ALICE), **where)
    assert data_of(client.tell("cursor_pull", cursor=both)) == [{"n": 1}, {"n": 2}]
    options = {"on_element_error": "skip"}
    old = reader.tell("cursor", options=options, keys=BOB.reading(first, ALICE), **where)
    assert data_of(reader.tell("cursor_pull", cursor=old)) == [{"n": 1}]
    assert reader.tell("cursor_checkpoint", cursor=old) > 0
    strict = reader.tell("cursor", keys=BOB.reading(first, ALICE), **where)
    with pytest.raises(ClientFailed):
        reader.tell("cursor_pull", cursor=strict)
    with pytest.raises(ClientFailed):
        reader.tell("cursor", keys=BOB.reading(second, ALICE), **where)


def test_what_one_client_signs_the_others_verify(
    client: Speaker, reader: Speaker, url: str, name: str, alice: Json
) -> None:
    where = {"url": url, "as_": alice, "key": f"notes/{name}"}
    said: list[Json] = [
        {},
        {"big": 2**53, "small": 5e-324, "large": 1.7976931348623157e308, "e": 1e21, "f": 1e-7, "zero": -0.0},
        {"\uffff": 1, "😀": 2, "a": 3, "A": 4, "10": 5, "9": 6, "": 7},
        {"s": 'é ✓ 😀 \u2028 \u007f \u0001 \b\f\n\r\t "\\ /', "nested": [[], [{}], [[[None]]]]},
    ]
    for data in said:
        client.tell("append", data=data, **where)
    cursor = reader.tell("cursor", options={"verify_author": {"expected_author_pubkey": ALICE.pub}}, **where)
    assert data_of(reader.tell("cursor_pull", cursor=cursor)) == said
