"""Tables by way of the client."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import msgspec
import pytest
from support.cutting_proxy import CuttingProxy
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import BadAnswer, BadRequest, Busy, Conflict, Forbidden, NewRow, NotFound, Patience
from strandline.client.table_types import AllBack, AllRemoved, Appended, Back, Ready, Removed, Updated

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)
_numbers = count(1)


class Note(msgspec.Struct):
    text: str
    likes: int = 0


@pytest.fixture
def url(mortal: ServerProcess) -> str:
    return mortal.url


@pytest.fixture
def desk() -> str:
    """A parent that no other test uses."""
    return f"desk-{next(_numbers)}"


async def listed(rows: Any) -> list[Any]:
    return [row async for row in rows]


def test_rows_are_appended_and_read(run: Run, url: str, desk: str) -> None:
    async def scenario(client: Any) -> None:
        notes = client.table("note", Note)
        first = await notes.append(desk, Note("one"))
        assert (first.seq, first.created, first.id) == (1, True, f"{desk}:1")
        bulk = await notes.append_bulk(desk, [Note("two"), NewRow(Note("three"), "key-3")])
        assert (bulk.count, [result.seq for result in bulk.results]) == (2, [2, 3])
        row = await notes.read(first.id)
        assert (row.payload, row.user, row.parent, row.seq, row.own) == (Note("one"), "ann", desk, 1, True)
        assert row.created_at == row.updated_at
        assert [row.payload.text for row in await listed(notes.list(desk))] == ["three", "two", "one"]
        assert [row.seq for row in await listed(notes.list(desk, page_size=1))] == [3, 2, 1]
        assert [row.seq for row in await listed(notes.list_after(desk, 1, page_size=1))] == [2, 3]
        assert [row.seq for row in await listed(notes.list(desk, where={"text": "two"}))] == [2]
        assert await notes.read(f"{desk}:99") is None
        with pytest.raises(BadAnswer):
            await client.table("note", Poll).read(first.id)

    run(scenario, url, user="ann")


class Poll(msgspec.Struct):
    title: str


def test_a_key_counts_for_as_long_as_its_row_is_there(run: Run, url: str, desk: str) -> None:
    async def scenario(client: Any) -> None:
        notes = client.table("note")
        first = await notes.append(desk, {"a": 1}, idempotency_key="k")
        again = await notes.append(desk, {"a": 1}, idempotency_key="k")
        assert (again.created, again.id) == (False, first.id)

    run(scenario, url, user="ann")


def test_an_append_whose_answer_is_lost_is_made_once(run: Run, url: str, desk: str) -> None:
    proxy = CuttingProxy(url, 0, 10, 150)

    async def scenario(client: Any) -> None:
        notes = client.table("note")
        for number in range(4):
            await notes.append(desk, {"number": number})
        await notes.append_bulk(desk, [{"number": 4}, {"number": 5}])
        assert [row.payload["number"] for row in await listed(notes.list_after(desk))] == [0, 1, 2, 3, 4, 5]

    run(scenario, proxy.url, user="ann", patience=PATIENCE)
    proxy.close()


def test_rows_are_edited_and_remember_what_they_were(run: Run, url: str, desk: str) -> None:
    async def scenario(client: Any) -> None:
        notes = client.table("note", Note)
        id = (await notes.append(desk, Note("draft"))).id
        before = await notes.read(id)
        after = await notes.update(id, {"text": "final"}, expected_updated_at=before.updated_at)
        assert after.payload == Note("final")
        with pytest.raises(Conflict) as caught:
            await notes.update(id, {"text": "late"}, expected_updated_at=before.updated_at - 1)
        assert caught.value.code == "CONFLICT"
        (edit,) = await notes.history(id)
        assert (edit.user, edit.previous) == ("ann", {"text": "draft", "likes": 0})

    run(scenario, url, user="ann")


def test_rows_are_removed_and_restored(run: Run, url: str) -> None:
    async def scenario(client: Any) -> None:
        poll = (await client.table("poll").append("main", {"title": "Tea?"})).id
        votes = client.table("vote")
        ids = [
            (await votes.append(poll, {"optionIdx": number % 2, "comment": f"vote {number}"})).id for number in range(4)
        ]
        assert (await votes.rm(ids[0])).soft
        assert (await votes.rm_bulk(ids[1:3])).count == 2
        assert [row.id for row in await listed(votes.list(poll))] == [ids[3]]
        assert (await votes.restore(ids[0])).id == ids[0]
        assert (await votes.restore_by_parent(poll)).restored == 2
        counts = await votes.counts(poll, "optionIdx")
        assert (counts.counts, counts.total) == ({"0": 2, "1": 2}, 4)
        grouped = await votes.indexed(poll, "optionIdx")
        assert {value: [row.seq for row in rows] for value, rows in grouped.items()} == {"0": [3, 1], "1": [4, 2]}
        assert [row.id for row in await votes.search(poll, "vote 2")] == [ids[2]]
        row = await client.table("vote", public=True).read(ids[0])
        assert row.author == {"name": "Ann"}
        purged = await votes.purge_by_parent(poll)
        assert (purged.deleted, purged.soft) == (4, True)
        assert not (await votes.purge_by_parent(poll, hard=True)).soft

    run(scenario, url, user="ann")


def test_removed_rows_are_in_the_trash_and_rows_of_all_parents_in_the_feed(run: Run, url: str, desk: str) -> None:
    async def scenario(client: Any) -> None:
        polls, votes = client.table("poll"), client.table("vote")
        parents = [(await polls.append(desk, {"title": title})).id for title in ("Lunch?", "Dinner?")]
        ids = [(await votes.append(parent, {"optionIdx": 1})).id for parent in (*parents, parents[0])]
        assert [row.id for row in await listed(votes.feed(page_size=2)) if row.parent in parents] == ids[::-1]
        await votes.rm(ids[2])
        (row,) = await listed(votes.trash(parents[0]))
        assert (row.id, row.deleted_by, row.deleted_at >= row.created_at) == (ids[2], "ann", True)
        async with votes.feed_live(after="now") as events:
            assert isinstance(await events.__anext__(), Ready)
            await votes.restore(ids[2])
            await votes.purge_by_parent(parents[1])
            back, purged = await events.__anext__(), await events.__anext__()
            assert (back.row.id, purged) == (ids[2], AllRemoved(parents[1], True))

    run(scenario, url, user="ann")


def test_refusals_have_their_codes(run: Run, url: str, desk: str) -> None:
    async def scenario(client: Any) -> None:
        with pytest.raises(NotFound) as missing:
            await client.table("nothing").append(desk, {})
        assert missing.value.code == "NOT_FOUND"
        with pytest.raises(BadRequest) as bad:
            await client.table("poll").append("main", {"title": 7})
        assert (bad.value.code, "title" in bad.value.detail["fieldErrors"]) == ("VALIDATION_FAILED", True)
        limited = client.table("limited")
        for number in range(3):
            await limited.append(desk, {"number": number})
        with pytest.raises(Busy) as busy:
            await limited.append(desk, {"number": 3})
        assert busy.value.code == "RATE_LIMITED"
        assert busy.value.retry_after is not None

    # Whoever is limited is limited on all desks.
    run(scenario, url, user=f"user-of-{desk}")


def test_others_may_not_touch_a_row(run: Run, url: str, desk: str) -> None:
    ids: list[str] = []

    async def write(client: Any) -> None:
        ids.append((await client.table("note").append(desk, {"a": 1})).id)

    async def meddle(client: Any) -> None:
        with pytest.raises((Forbidden, NotFound)):
            await client.table("note").update(ids[0], {"a": 2})
        assert await client.table("note").read(ids[0]) is None

    run(write, url, user="ann")
    run(meddle, url, user="eve")


async def take(live: Any, number: int) -> list[Any]:
    return [await live.__anext__() for _ in range(number)]


def test_a_live_reader_is_told_of_everything(run: Run, url: str) -> None:
    async def scenario(client: Any) -> None:
        poll = (await client.table("poll").append("main", {"title": "Tea?"})).id
        votes = client.table("vote")
        first = (await votes.append(poll, {"optionIdx": 0})).id
        async with votes.live(poll) as live:
            appended, ready = await take(live, 2)
            assert isinstance(appended, Appended)
            assert appended.row.id == first
            assert isinstance(ready, Ready)
            await votes.update(first, {"optionIdx": 1})
            await votes.rm(first)
            await votes.restore(first)
            await votes.purge_by_parent(poll)
            await votes.restore_by_parent(poll)
            updated, removed, back, all_removed, all_back = await take(live, 5)
            assert isinstance(updated, Updated)
            assert removed == Removed(first, 1, True)
            assert isinstance(back, Back)
            assert (all_removed, all_back) == (AllRemoved(poll, True), AllBack(poll))
            cursor = live.cursor
        await votes.append(poll, {"optionIdx": 2})
        async with votes.live(poll, after=cursor) as live:
            (appended,) = await take(live, 1)
            assert appended.row.payload["optionIdx"] == 2

    run(scenario, url, user="ann")


def test_a_live_reader_goes_on_over_a_restart_without_loss_or_repetition(
    run: Run, mortal: ServerProcess, desk: str
) -> None:

    async def scenario(client: Any) -> None:
        notes = client.table("note")
        await notes.append(desk, {"number": 0})
        async with notes.live(desk) as live:
            seen: list[Any] = await take(live, 2)
            mortal.kill()
            waiting = asyncio.ensure_future(take(live, 1))
            await asyncio.to_thread(mortal.start, mortal.port)
            for number in (1, 2):
                await notes.append(desk, {"number": number})
            seen += await waiting
            while sum(isinstance(event, Appended) for event in seen) < 3:
                seen += await take(live, 1)
        assert [event.row.payload["number"] for event in seen if isinstance(event, Appended)] == [0, 1, 2]

    run(scenario, mortal.url, user="ann", patience=PATIENCE)
