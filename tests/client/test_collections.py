"""Collections by way of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest
from support.cutting_proxy import CuttingProxy
from support.document_tables import ROOT
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import (
    Appended,
    BadAnswer,
    BadRequest,
    Conflict,
    Credential,
    DocumentRequest,
    Element,
    Forbidden,
    NotAuthenticated,
    NotPulled,
    OwnIdentity,
    Patience,
    Unreachable,
    Unreadable,
    WrongAuthor,
)
from strandline.signing import certificates, keyring
from strandline.signing.author_proofs import Proof, holds_for
from strandline.signing.canonical_json import digest
from strandline.signing.keys import KemKey, Signer

ALICE, BOB = OwnIdentity(Signer("01" * 32), KemKey("41" * 32)), OwnIdentity(Signer("02" * 32), KemKey("42" * 32))


class Note(msgspec.Struct):
    text: str
    stars: int = 0


@pytest.fixture(scope="module")
def collections_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config: Path = ROOT / "tests" / "clients" / "starfish" / "collections.toml"
    process = ServerProcess(tmp_path_factory.mktemp("collections") / "data", config=config)
    try:
        yield process.start().url
    finally:
        process.end()


def test_what_is_appended_is_pulled_and_signed(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).document(f"notes/{name}", Note, verify=ALICE.signer.public)
        done = await document.append(Note("a"))
        assert done.hash == digest({"n": 1, "last": {"text": "a", "stars": 0}})
        await document.append(Note("b", 2))
        pulled = await document.pull(full=True)
        assert [element.data for element in pulled.elements] == [Note("a"), Note("b", 2)]
        assert (pulled.elements[0].ts, pulled.more) == (done.timestamp, False)
        assert pulled.hash == digest({"n": 2, "last": {"text": "b", "stars": 2}})
        [stored] = (await document.pull_stored(last=1)).elements
        proof = Proof(stored.author, stored.signature)
        assert proof.public_key == ALICE.signer.public
        assert holds_for(proof, f"notes/{name}", stored.data)
        with pytest.raises(ValueError, match="nothing selects"):
            await document.pull()
        with pytest.raises(TypeError, match="a JSON object"):
            await document.append([1])

    run(scenario, url=collections_url)


def test_data_of_another_type_is_told(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        collections = client.collections(ALICE)
        await collections.document(f"notes/{name}").append({"text": 7}, ts=5)
        with pytest.raises(BadAnswer, match="the element at 5"):
            await collections.document(f"notes/{name}", Note).pull(full=True)

    run(scenario, url=collections_url)


def test_halves_of_surrogate_pairs_and_large_numbers_are_appended_and_verified(
    run: Run, collections_url: str, name: str
) -> None:
    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).document(f"notes/{name}", verify=True)
        said = [{"half": "\ud800", "\udc00": 0.1}, {"large": 2**60 + 1, "larger": 10**30}]
        for data in said:
            await document.append(data)
        assert [element.data for element in (await document.pull(full=True)).elements] == said

    run(scenario, url=collections_url)


def test_an_append_with_a_time_survives_a_lost_answer(run: Run, collections_url: str, name: str) -> None:
    proxy = CuttingProxy(collections_url, 0)

    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).document(f"notes/{name}")
        assert await document.append({"n": 1}, ts=1000) == Appended(None, 1000)
        assert proxy.connections > 1
        assert [element.ts for element in (await document.pull(full=True)).elements] == [1000]

    run(scenario, url=proxy.url)
    proxy.close()


def test_somebody_elses_element_is_not_taken_for_ones_own(run: Run, collections_url: str, name: str) -> None:
    proxy = CuttingProxy(collections_url)

    async def scenario(client: Any) -> None:
        await client.collections(BOB).document(f"notes/{name}").append({"n": 1}, ts=1000)

    async def too_late(client: Any) -> None:
        with pytest.raises(Conflict) as caught:
            await client.collections(ALICE).document(f"notes/{name}").append({"n": 1}, ts=1000)
        assert caught.value.code == "non_monotonic_timestamp"

    run(scenario, url=proxy.url)
    proxy.faults.append(0)
    run(too_late, url=proxy.url)
    proxy.close()


def test_an_append_without_a_time_is_not_sent_again(run: Run, collections_url: str, name: str) -> None:
    proxy = CuttingProxy(collections_url, 0)

    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).document(f"notes/{name}")
        with pytest.raises(Unreachable) as caught:
            await document.append({"n": 1})
        assert caught.value.sent
        assert proxy.connections == 1
        assert len((await document.pull(full=True)).elements) == 1

    run(scenario, url=proxy.url)
    proxy.close()


def test_a_pull_is_signed_anew_when_it_is_tried_again(run: Run, collections_url: str, name: str) -> None:
    proxy = CuttingProxy(collections_url, 0, 0)

    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).document(f"notes/{name}")
        assert (await document.pull(full=True)).elements == []
        assert proxy.connections == 3

    run(scenario, url=proxy.url)
    proxy.close()


def test_refusals_have_the_servers_code(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        short = client.collections().document(f"short/{name}")
        for number in (1, 2):
            await short.append({"n": number})
        with pytest.raises(Conflict) as full:
            await short.append({"n": 3})
        assert (full.value.code, full.value.detail) == ("append_limit_exceeded", {"limit": 2})
        with pytest.raises(BadRequest) as unsigned:
            await client.collections().document(f"inbox/{name}").append({"n": 1})
        assert unsigned.value.code == "append requires authorPubkey and authorSignature"
        stale = certificates.mint_device(
            ALICE.signer, ALICE.signer.public, ALICE.kem.public, certificates.everything(), now_s=1000
        )
        with pytest.raises(NotAuthenticated):
            await client.collections(Credential(stale, ALICE.signer)).document(f"notes/{name}").pull(last=1)

    run(scenario, url=collections_url)


def test_a_batch_has_what_was_asked_for_and_why_the_rest_was_refused(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        collections = client.collections(ALICE)
        for number in (1, 2, 3):
            await collections.document(f"notes/{name}").append({"n": number}, ts=number)
        await collections.document("flat").append({"n": 4})
        told = await collections.batch_pull(
            {
                "notes": [
                    DocumentRequest(params={"id": name}, last=2),
                    DocumentRequest(params={"id": name}, since=2),
                    DocumentRequest(params={"id": name}),
                ],
                "flat": [DocumentRequest(last=1, field="entries")],
                "nowhere": [DocumentRequest(last=1)],
                "board": [],
            }
        )
        assert [[each.data["n"] for each in entry.elements] for entry in told["notes"][:2]] == [[2, 3], [3]]
        assert told["notes"][2] == NotPulled("pull_bound_required")
        assert told["flat"][0].elements[0].data == {"n": 4}
        assert told["nowhere"] == [NotPulled("Collection not found")]
        assert told["board"] == []
        document = collections.document(f"notes/{name}", verify=True)
        assert [each.data["n"] for each in document.opened(told["notes"][0].elements)] == [2, 3]

    run(scenario, url=collections_url)


def test_a_cursor_reads_what_is_only_given_part_by_part(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        document = client.collections().document(f"pages/{name}")
        for number in range(8):
            await document.append({"n": number}, ts=number)
        cursor = document.cursor()
        assert [element.ts for element in await cursor.pull()] == list(range(8))
        assert await cursor.pull() == []
        assert (await document.pull(since=2)).more

    run(scenario, url=collections_url)


def test_a_cursor_does_not_give_an_element_at_the_time_0_twice(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        document = client.collections().document(f"board/{name}")
        await document.append({"n": 0}, ts=0)
        cursor = document.cursor()
        assert [element.ts for element in await cursor.pull()] == [0]
        assert await cursor.pull() == []
        again = document.cursor(cursor.items)
        assert await again.pull() == []
        assert [element.ts for element in again.items] == [0]

    run(scenario, url=collections_url)


def test_pulls_of_one_cursor_take_turns(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        document = client.collections().document(f"board/{name}")
        for number in (1, 2, 3):
            await document.append({"n": number}, ts=number)
        cursor = document.cursor()
        batches = await asyncio.gather(*(cursor.pull() for _ in range(4)))
        assert sorted(len(batch) for batch in batches) == [0, 0, 0, 3]
        assert len(cursor.items) == 3

    run(scenario, url=collections_url)


def test_a_cursor_is_kept_encrypted_and_goes_on(run: Run, collections_url: str, name: str) -> None:
    made, _ = keyring.create(ALICE.signer, [ALICE.kem.public, BOB.kem.public], now_s=int(time()))
    trusted = [ALICE.signer.public]

    async def scenario(client: Any) -> None:
        writing = client.collections(ALICE).document(
            f"secret/{name}", encryptor=keyring.Encryptor(made, ALICE.kem, trusted)
        )
        for number in (1, 2):
            await writing.append({"n": number}, ts=number)
        cap = certificates.mint_member(
            ALICE.signer,
            BOB.signer.public,
            BOB.kem.public,
            "secret",
            certificates.read_only("secret"),
            now_s=int(time()),
        )
        document = client.collections(Credential(cap, BOB.signer)).document(
            f"secret/{name}", encryptor=keyring.Encryptor(made, BOB.kem, trusted), verify=trusted
        )
        cursor = document.cursor(persist_encrypted=True)
        assert [element.data for element in await cursor.pull()] == [{"n": 1}, {"n": 2}]
        kept = msgspec.json.decode(msgspec.json.encode(cursor.items))
        assert all("_encrypted" in item["data"] for item in kept)
        await writing.append({"n": 3}, ts=3)
        warm = document.cursor(kept, persist_encrypted=True)
        assert [element.data for element in warm.decrypted_items()] == [{"n": 1}, {"n": 2}]
        assert [element.data for element in await warm.pull()] == [{"n": 3}]
        assert warm.checkpoint == 3

        plain = client.collections(ALICE).document(f"secret/{name}")
        await plain.append({"n": 4}, ts=4)
        with pytest.raises(Unreadable) as unreadable:
            await warm.pull()
        assert (unreadable.value.ts, warm.checkpoint) == (4, 3)
        skipping = document.cursor(since=3, on_element_error="skip")
        assert await skipping.pull() == []
        assert (skipping.skipped, skipping.checkpoint, skipping.items) == (1, 4, [])

    run(scenario, url=collections_url)


def test_links_and_members_and_namespaces(run: Run, collections_url: str, name: str) -> None:
    link = certificates.encode_link(
        certificates.mint_audience(ALICE.signer, "notes", certificates.writer("notes"), now_s=int(time()))
    )

    async def scenario(client: Any) -> None:
        credential = Credential.from_link(f"https://example.org/share#{link}", BOB.signer)
        document = client.collections(credential).document(f"notes/{name}", verify=True)
        await document.append({"n": 1})
        [element] = (await document.pull(full=True)).elements
        assert element.author == BOB.signer.public
        strict = client.collections(credential).document(f"notes/{name}", verify=ALICE.signer.public)
        with pytest.raises(WrongAuthor) as wrong:
            await strict.pull(full=True)
        assert wrong.value.ts == element.ts
        team = client.collections(ALICE, namespace="team").document(f"chat/{name}", verify=True)
        await team.append({"n": 2})
        assert (await team.pull(last=1)).elements[0].data == {"n": 2}

    run(scenario, url=collections_url)


def test_an_anonymous_append_is_signed_by_its_author_alone(run: Run, collections_url: str, name: str) -> None:
    author = Signer.generate()

    async def scenario(client: Any) -> None:
        inbox = client.collections(ALICE).document(f"inbox/{name}", verify=author.public)
        await inbox.append_anonymous({"n": 1}, author=author, ts=9)
        pulled = await inbox.pull(full=True)
        assert pulled.elements == [Element(9, {"n": 1}, author.public, pulled.elements[0].signature)]

    run(scenario, url=collections_url)


def test_a_certificate_takes_the_place_of_a_key(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        await client.collections(ALICE).document(f"notes/{name}").append({"n": 1})

    run(scenario, url=collections_url, key="a key of the server")


async def take(live: Any, number: int) -> list[Any]:
    return [(await live.__anext__()).data for _ in range(number)]


def test_a_document_is_followed(run: Run, collections_url: str, name: str) -> None:
    async def scenario(client: Any) -> None:
        collections = client.collections(ALICE)
        document = collections.document(f"notes/{name}", Note, verify=ALICE.signer.public)
        first = await document.append(Note("a"))
        await document.append(Note("b"))
        async with document.live(since=first.timestamp) as live:
            assert await take(live, 1) == [Note("b")]
            third = await document.append(Note("c"))
            assert await take(live, 1) == [Note("c")]
            assert live.cursor == str(third.timestamp)
        async with collections.document(f"notes/{name}", verify=BOB.signer.public).live(since=0) as live:
            with pytest.raises(WrongAuthor):
                await live.__anext__()
        async with client.collections().document(f"notes/{name}").live() as live:
            with pytest.raises(Forbidden):
                await live.__anext__()
        with pytest.raises(ValueError, match="negative"):
            document.live(since=-1)

    run(scenario, url=collections_url)


def test_a_document_is_followed_over_a_restart_without_loss_or_repetition(run: Run, tmp_path: Path, name: str) -> None:
    config = ROOT / "tests" / "clients" / "starfish" / "collections.toml"
    server = ServerProcess(tmp_path / "data", config=config).start()

    async def scenario(client: Any) -> None:
        document = client.collections(ALICE).document(f"notes/{name}")
        await document.append({"n": 0})
        async with document.live(since=0) as live:
            seen = await take(live, 1)
            server.kill()
            waiting = asyncio.ensure_future(take(live, 2))
            await asyncio.to_thread(server.start, server.port)
            for number in (1, 2):
                await document.append({"n": number})
            seen += await waiting
        assert [data["n"] for data in seen] == [0, 1, 2]

    try:
        run(scenario, url=server.url, patience=Patience(60, first_wait=0.001, longest_wait=0.1))
    finally:
        server.end()
