"""Regular documents and keyrings by way of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.cutting_proxy import CuttingProxy
from support.document_tables import ROOT
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import (
    BadAnswer,
    Client,
    Conflict,
    Credential,
    DocumentRequest,
    OwnIdentity,
    Patience,
    Pushed,
    Unreadable,
    WrongAuthor,
)
from strandline.signing import keyring
from strandline.signing.canonical_json import digest
from strandline.signing.keyring import BadKeyring
from strandline.signing.keys import KemKey, Signer

ALICE, BOB = OwnIdentity(Signer("01" * 32), KemKey("41" * 32)), OwnIdentity(Signer("02" * 32), KemKey("42" * 32))
PHONE = Signer("11" * 32), KemKey("51" * 32)


class Members(msgspec.Struct):
    names: list[str] = []


@pytest.fixture(scope="module")
def collections_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config: Path = ROOT / "tests" / "clients" / "starfish" / "collections.toml"
    process = ServerProcess(tmp_path_factory.mktemp("collections") / "data", config=config)
    try:
        yield process.start().url
    finally:
        process.end()


def test_a_document_is_pushed_pulled_and_verified(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        collections = client.collections(ALICE)
        members = collections.regular_document(f"documents/{name}", Members, verify=ALICE.signer.public)
        missing = await members.pull()
        assert (missing.data, missing.hash) == (None, "")
        pushed = await members.push(Members(["ann"]))
        assert pushed.hash == digest({"names": ["ann"]})
        current = await members.pull()
        assert (current.data, current.hash, current.author) == (Members(["ann"]), pushed.hash, ALICE.signer.public)
        with pytest.raises(Conflict) as caught:
            await members.push(Members())
        assert (caught.value.code, caught.value.detail) == ("hash_mismatch", {"currentHash": pushed.hash})
        other = client.collections(BOB).regular_document(f"documents/{name}", verify=True)
        await other.push({"names": 7}, base_hash=pushed.hash)
        assert (await other.pull()).data == {"names": 7}
        with pytest.raises(WrongAuthor, match=f"the document documents/{name} was not accepted: its author"):
            await members.pull()
        with pytest.raises(BadAnswer, match=f"the document documents/{name} has unexpected data"):
            await collections.regular_document(f"documents/{name}", Members).pull()

    run(scenario, url=collections_url)


def test_an_update_is_made_to_the_current_version(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        members = client.collections().regular_document(f"documents/{name}", Members)

        def with_name(name: str) -> Any:
            return lambda current: Members([*(Members() if current is None else current).names, name])

        await asyncio.gather(*(members.update(with_name(name)) for name in "abcdef"))
        assert sorted((await members.pull()).data.names) == list("abcdef")
        assert await members.update(lambda _: None) is None

    run(scenario, url=collections_url)


def test_an_update_that_always_comes_too_late_is_given_up(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        document = client.collections().regular_document(f"documents/{name}")
        tries: list[int] = []

        def late(current: Any) -> Any:
            tries.append(len(tries))
            overtaking = collections.regular_document(f"documents/{name}")
            overtaking.push({"n": len(tries)}, base_hash=overtaking.pull().hash or None)
            return {"mine": True}

        with Client(collections_url) as others:
            collections = others.collections()
            with pytest.raises(Conflict):
                await document.update(late)
        assert 1 < len(tries) < 100

    run(scenario, url=collections_url)


def test_a_push_survives_a_lost_answer(run: Run, collections_url: str, name: str) -> None:
    proxy = CuttingProxy(collections_url, 0)

    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).regular_document(f"documents/{name}")
        assert await document.push({"n": 1}) == Pushed(digest({"n": 1}), None)
        assert proxy.connections > 1

    run(scenario, url=proxy.url)
    proxy.close()


async def take(live: Any, count: int) -> list[Any]:
    return [(await live.__anext__()).data for _ in range(count)]


def test_a_document_is_followed(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        collections = client.collections(ALICE)
        members = collections.regular_document(f"documents/{name}", Members, verify=ALICE.signer.public)
        async with members.live() as live:
            first = await members.push(Members(["ann"]))
            version = await live.__anext__()
            assert (version.data, version.hash, version.author) == (Members(["ann"]), first.hash, ALICE.signer.public)
            assert version.timestamp == first.timestamp
            second = await members.push(Members(["ann", "ben"]), base_hash=first.hash)
            assert await take(live, 1) == [Members(["ann", "ben"])]
            assert live.cursor == second.hash
        async with members.live(base_hash=first.hash) as live:
            assert await take(live, 1) == [Members(["ann", "ben"])]
        async with members.live(base_hash=second.hash) as live:
            await members.push(Members([]), base_hash=second.hash)
            assert await take(live, 1) == [Members([])]
        async with collections.regular_document(f"documents/{name}", verify=BOB.signer.public).live() as live:
            with pytest.raises(WrongAuthor):
                await live.__anext__()
            assert live.cursor is None

    run(scenario, url=collections_url)


def test_a_document_is_followed_over_a_restart(run: Run, tmp_path: Path, name: str) -> None:
    config: Path = ROOT / "tests" / "clients" / "starfish" / "collections.toml"
    server = ServerProcess(tmp_path / "data", config=config).start()

    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).regular_document(f"documents/{name}")
        hash = (await document.push({"n": 0})).hash
        async with document.live() as live:
            seen = await take(live, 1)
            server.kill()
            waiting = asyncio.ensure_future(take(live, 1))
            await asyncio.to_thread(server.start, server.port)
            await document.push({"n": 1}, base_hash=hash)
            seen += await waiting
        assert [data["n"] for data in seen] == [0, 1]

    try:
        run(scenario, url=server.url, patience=Patience(60, first_wait=0.001, longest_wait=0.1))
    finally:
        server.end()


def test_a_document_may_be_encrypted(run: Run, collections_url: str, name: str) -> None:
    def encryptor() -> keyring.Encryptor:
        made = keyring.create(ALICE.signer, [ALICE.kem.public], now_s=1).keyring
        return keyring.Encryptor(made, ALICE.kem, [ALICE.signer.public])

    async def scenario(client: Any) -> None:
        collections, sealing = client.collections(ALICE), encryptor()
        document = collections.regular_document(f"documents/{name}", encryptor=sealing, verify=True)
        await document.push({"n": 1})
        assert (await document.pull()).data == {"n": 1}
        stored = (await collections.regular_document(f"documents/{name}").pull()).data
        assert stored.keys() == {"_encrypted", "_epoch"}
        with pytest.raises(Unreadable, match=f"the document documents/{name} was not accepted"):
            await collections.regular_document(f"documents/{name}", encryptor=encryptor()).pull()

    run(scenario, url=collections_url)


def test_a_batch_has_regular_documents(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        collections = client.collections()
        pushed = await collections.regular_document(f"documents/{name}").push({"n": 1})
        asks = {
            "documents": [DocumentRequest(params={"id": each}, regular=True) for each in (name, f"{name}-missing")],
            "board": [DocumentRequest(params={"id": name}, last=1)],
        }
        pulled = await collections.batch_pull(asks)
        assert [(each.data, each.hash) for each in pulled["documents"]] == [({"n": 1}, pushed.hash), (None, "")]
        assert pulled["board"][0].elements == []
        with pytest.raises(ValueError, match="a regular document has no elements"):
            await collections.batch_pull({"documents": [DocumentRequest(regular=True, last=1)]})

    run(scenario, url=collections_url)


# --- keyrings --------------------------------------------------------------------------------------------------------


def test_a_keyring_is_shared_with_devices_and_taken_from_them(run: Run, collections_url: str, name: str) -> None:
    signer, kem = PHONE
    phone_credential = Credential(ALICE.certify(signer.public, kem.public), signer)

    async def scenario(client: Any) -> None:
        trusted = [ALICE.signer.public]
        key = f"spaces/{name}/_keyring"
        laptop = client.collections(ALICE).keyring(key, ALICE.kem, trusted_adders=trusted)
        phone = client.collections(phone_credential).keyring(key, kem, trusted_adders=trusted)
        for absent in (laptop.encryptor, laptop.recipients, lambda: laptop.add(kem.public)):
            with pytest.raises(BadKeyring, match=f"there is no keyring at {key}; create it first"):
                await absent()
        await laptop.create()
        with pytest.raises(Conflict, match=f"the keyring {key} exists; change its recipients with add or remove"):
            await laptop.create()
        with pytest.raises(BadKeyring, match="no usable key of epoch 1"):
            await phone.encryptor()
        await laptop.add(kem.public, BOB.kem.public)
        await laptop.add(kem.public)
        assert await phone.recipients() == [ALICE.kem.public, kem.public, BOB.kem.public]
        sealed = (await laptop.encryptor()).encrypt({"n": 1})
        assert (await phone.encryptor()).decrypt(sealed) == {"n": 1}
        assert (await laptop.remove(BOB.kem.public)).current_epoch == 2
        assert (await laptop.remove(BOB.kem.public)).current_epoch == 2, "there is nobody left to remove"
        assert (await phone.encryptor()).decrypt(sealed) == {"n": 1}, "earlier epochs stay readable"
        assert await laptop.recipients() == [ALICE.kem.public, kem.public]

    run(scenario, url=collections_url)


def test_entries_of_others_are_neither_used_nor_kept(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        key = f"spaces/{name}/_keyring"
        mine = client.collections(ALICE).keyring(key, ALICE.kem, trusted_adders=[ALICE.signer.public])
        await mine.create([BOB.kem.public])
        theirs = client.collections(BOB).keyring(key, BOB.kem, trusted_adders=[ALICE.signer.public, BOB.signer.public])
        await theirs.add(PHONE[1].public)
        assert await theirs.recipients() == [ALICE.kem.public, BOB.kem.public, PHONE[1].public]
        assert await mine.recipients() == [ALICE.kem.public, BOB.kem.public]
        assert (await mine.remove()).current_epoch == 2, "the entry of another adder is left out"
        assert await theirs.recipients() == [ALICE.kem.public, BOB.kem.public]

    run(scenario, url=collections_url)


def test_a_keyring_that_was_rolled_back_is_refused(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        key = f"spaces/{name}/_keyring"
        mine = client.collections(ALICE).keyring(key, ALICE.kem, trusted_adders=[ALICE.signer.public])
        await mine.create([BOB.kem.public])
        document = client.collections(ALICE).regular_document(key)
        old = await document.pull()
        await mine.remove(BOB.kem.public)
        await document.push(old.data, base_hash=(await document.pull()).hash)
        with pytest.raises(BadKeyring, match="the keyring is at epoch 1; expected 2 or later"):
            await mine.encryptor()

    run(scenario, url=collections_url)


def test_a_keyring_needs_a_credential(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        with pytest.raises(ValueError, match="a keyring needs a credential"):
            client.collections().keyring("spaces/a/_keyring", ALICE.kem, trusted_adders=[])

    run(scenario, url=collections_url)
