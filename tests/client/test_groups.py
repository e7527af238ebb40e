"""Consumer groups: members come, go and are killed, and no record is skipped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.document_tables import ROOT
from support.either_client import Run
from support.group_member import PAGE
from support.server_process import ServerProcess
from support.topics_client import eventually

from strandline.client import Client, Conflict, Draft, NotFound, RecordsLost
from strandline.client.group_calls import GrantedShare, GroupAnswer, MemberShares
from strandline.client.retry import NO_PATIENCE
from strandline.client.topic_types import Page, Record
from strandline.key_share import share_of

TAGS = [f"customer-{number}" for number in range(25)]


def records(first: int, count: int) -> list[Draft[int]]:
    """Every tenth has no tag."""
    return [Draft(number, tag=TAGS[number % 25] if number % 10 else None) for number in range(first, first + count)]


def of_tags(found: list[Any]) -> dict[Any, list[int]]:
    by_tag: dict[Any, list[int]] = defaultdict(list)
    for record in found:
        by_tag[record.tag].append(record.seq)
    return by_tag


# --- one process ----------------------------------------------------------------------------------------------------


def test_one_member_gets_everything_and_continues(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many(records(1, 100))
        group = topic.consumer_group("billing")
        async with group.join(node="a") as member:
            assert member.shares == list(range(16))
            found = [record async for record in member.records(size=7, until_end=True)]
        assert sorted(record.seq for record in found) == list(range(1, 101))
        assert all(seqs == sorted(seqs) for tag, seqs in of_tags(found).items())
        state = await group.state()
        assert (state.of, state.lag, state.members) == (16, 0, [])
        await topic.write_many(records(101, 10))
        async with group.join() as member:
            batches = [batch async for batch in member.batches(size=4, until_end=True)]
        assert [[record.seq for record in batch] for batch in batches] == [
            [101, 102, 103, 104], [105, 106, 107, 108], [109, 110],
        ]  # fmt: skip

    run(scenario)


def test_two_members_share_the_tags(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many(records(1, 300))
        group = topic.consumer_group("billing")
        async with group.join(node="a", lease_ms=600) as first, group.join(node="b", lease_ms=600) as second:
            found: dict[str, list[Any]] = {"a": [], "b": []}

            async def follow(node: str, member: Any) -> None:
                async for record in member.records(size=10):
                    found[node].append(record)

            tasks = [asyncio.ensure_future(follow("a", first)), asyncio.ensure_future(follow("b", second))]
            await until(lambda: len(first.shares) == len(second.shares) == 8)
            await topic.write_many(records(301, 300))
            await until(lambda: len(found["a"]) + len(found["b"]) >= 600)
            first.stop()
            second.stop()
            await asyncio.gather(*tasks)
        every = [record.seq for node in found.values() for record in node]
        assert sorted(every) == list(range(1, 601))
        late = {node: {r.tag for r in found[node] if r.seq > 300 and r.tag} for node in found}
        assert late["a"] | late["b"] == set(TAGS)
        assert not late["a"] & late["b"]
        assert (await group.state()).lag == 0

    run(scenario)


async def until(look: Any) -> None:
    await asyncio.to_thread(eventually, look)


def test_what_was_not_finished_is_delivered_again(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many(records(1, 20))
        group = topic.consumer_group("billing")
        async with group.join() as member:
            found = member.records(size=10)
            assert [(await found.__anext__()).seq for _ in range(4)] == [1, 2, 3, 4]
        # The fourth one was not finished: the next was not requested.
        async with group.join() as member:
            found = member.records(size=10)
            assert [(await found.__anext__()).seq for _ in range(2)] == [4, 5]
            await member.commit()
        async with group.join() as member:
            assert [r.seq async for r in member.records(until_end=True)] == list(range(6, 21))

    run(scenario)


def test_without_auto_commit_only_commit_commits(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many(records(1, 30))
        group = topic.consumer_group("billing")
        for expected in (list(range(1, 31)), list(range(1, 31))):
            async with group.join(auto_commit=False) as member:
                found = [r.seq async for r in member.records(size=10, until_end=True)]
                assert found == expected
        async with group.join(auto_commit=False) as member:
            async for record in member.records(size=10, until_end=True):
                if record.seq == 12:
                    await member.commit()
        async with group.join() as member:
            assert [r.seq async for r in member.records(until_end=True)] == list(range(13, 31))

    run(scenario)


def test_the_state_and_the_deletion_of_a_group(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many([1, 2, 3])
        group = topic.consumer_group("billing")
        with pytest.raises(NotFound):
            await group.state()
        async with group.join(node="a", shares=4, at="end"):
            state = await group.state()
            assert [(share.node, share.seq) for share in state.shares] == [("a", 3)] * 4
            assert [(member.node, member.shares) for member in state.members] == [("a", 4)]
            with pytest.raises(Conflict):
                await group.delete()
        assert await group.delete()
        assert not await group.delete()

    run(scenario)


def test_loss_is_reported(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.configure(cap_records=3)
        await topic.write_many([1])
        group = topic.consumer_group("billing")
        async with group.join():
            pass
        await topic.write_many([2, 3, 4, 5, 6])
        async with group.join() as member:
            with pytest.raises(RecordsLost):
                await member.records(until_end=True).__anext__()
        lost: list[Any] = []
        async with group.join(on_loss=lost.append) as member:
            assert [record.data async for record in member.records(until_end=True)] == [4, 5, 6]
        assert [(each.gap_from, each.gap_to) for each in lost] == [(1, 3)]

    run(scenario)


def test_a_member_must_be_opened(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        with pytest.raises(RuntimeError, match="with statement"):
            await client.topic(name).consumer_group("billing").join().records().__anext__()
        with pytest.raises(ValueError, match="lease_ms"):
            client.topic(name).consumer_group("billing").join(lease_ms=1)

    run(scenario)


# --- the shares of a member -----------------------------------------------------------------------------------------


def answer(*shares: tuple[int, int, int], give_back: list[int] | None = None, lost: Any = ()) -> GroupAnswer:
    return GroupAnswer(2, 1000, [GrantedShare(*each) for each in shares], give_back or [], list(lost))


def page(seqs: list[int], end: int, head: int = 100) -> Page[int]:
    return Page("topic", [Record(seq, 0, seq) for seq in seqs], end, head, 1, end == head, head - end)


def reported(shares: MemberShares[int]) -> list[tuple[int, int, bool]]:
    return [(each["share"], each["seq"], each["release"]) for each in shares.report().held]


def test_shares_that_are_behind_catch_up_with_the_others() -> None:
    shares: MemberShares[int] = MemberShares()
    shares.accept(answer((0, 7, 10), (1, 8, 4)), shares.report())
    wanted = shares.next_read()
    assert wanted is not None
    assert (wanted.after, wanted.only, wanted.wait) == (4, [1], False)
    # What is past the position of the other share is read again, for both.
    shares.fill(page([5, 7, 9, 11], 12))
    assert [record.seq for record in shares.take(10)] == [5, 7, 9]
    assert shares.next_read() == (10, 2, [0, 1], True)


def test_a_read_that_fails_moves_nothing() -> None:
    shares: MemberShares[int] = MemberShares()
    shares.accept(answer((0, 7, 10), (1, 8, 4)), shares.report())
    wanted = shares.next_read()
    assert shares.take(10) == []
    shares.finish()
    assert reported(shares) == [(0, 10, False), (1, 4, False)]
    assert shares.next_read() == wanted


def test_a_share_leaves_when_what_was_delivered_is_processed() -> None:
    shares: MemberShares[int] = MemberShares()
    shares.accept(answer((0, 7, 0), (1, 8, 0)), shares.report())
    shares.next_read()
    shares.fill(page([2, 3, 4], 4))
    assert [record.seq for record in shares.take(1)] == [2]
    shares.accept(answer((0, 7, 0), (1, 8, 0), give_back=[1]), shares.report())
    # Nothing of share 1 was delivered, so it can leave, and nothing more of it is delivered.
    assert reported(shares) == [(0, 0, False), (1, 0, True)]
    assert [record.seq for record in shares.take(10)] == [4]
    shares.finish()
    assert reported(shares) == [(0, 4, False), (1, 0, True)]


def test_a_share_that_is_being_processed_does_not_leave() -> None:
    shares: MemberShares[int] = MemberShares()
    shares.accept(answer((1, 8, 0)), shares.report())
    shares.next_read()
    shares.fill(page([1, 3], 4))
    shares.take(1)
    shares.accept(answer((1, 8, 0), give_back=[1]), shares.report())
    assert reported(shares) == [(1, 0, False)]
    shares.finish()
    assert reported(shares) == [(1, 1, True)]
    shares.accept(answer(lost=[1]), shares.report())
    # That is how a repeated request is answered.
    assert shares.take_lost() == []
    assert shares.next_read() is None


def test_a_share_that_was_lost_and_granted_again_begins_where_it_was_committed() -> None:
    shares: MemberShares[int] = MemberShares()
    shares.accept(answer((0, 7, 0)), shares.report())
    shares.next_read()
    shares.fill(page([2, 4, 6], 6))
    shares.take(2)
    shares.finish()
    shares.accept(answer((0, 9, 0), lost=[0]), shares.report())
    assert shares.take_lost() == [0]
    assert shares.take(10) == []
    wanted = shares.next_read()
    assert wanted is not None
    assert wanted.after == 0


# --- processes ------------------------------------------------------------------------------------------------------


class Members:
    """Members in processes of their own, with the journal that they share."""

    def __init__(self, server: ServerProcess, topic: str, directory: Path) -> None:
        self._server = server
        self._topic = topic
        self._journal = directory / "journal"
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *options: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "support.group_member",
            self._server.url,
            self._topic,
            name,
            str(self._journal),
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        process = self._processes[name] = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def stop(self, name: str) -> str:
        """Ask it to end, and return what it said."""
        process = self._processes[name]
        process.terminate()
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        return said

    def lines(self) -> list[tuple[str, int, str]]:
        text = self._journal.read_text() if self._journal.exists() else ""
        rows = [line.split() for line in text.splitlines()]
        return [(name, int(seq), tag) for name, seq, tag in rows]

    def end(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=30)


@contextmanager
def members_of(server: ServerProcess, topic: str, directory: Path) -> Iterator[Members]:
    members = Members(server, topic, directory)
    try:
        yield members
    finally:
        members.end()


def test_no_record_is_skipped_when_members_come_go_and_are_killed(
    server: ServerProcess, name: str, tmp_path: Path
) -> None:
    with Client(server.url) as client, members_of(server, name, tmp_path) as members:
        topic = client.topic(name)
        group = topic.consumer_group("group")
        topic.write_many(records(1, 1))
        doomed = members.start("doomed", "--die-after", str(PAGE * 3 + PAGE // 2))
        members.start("b")
        eventually(lambda: [member.shares for member in group.state().members] == [8, 8])
        topic.write_many(records(2, 399))
        assert doomed.wait(30) == -signal.SIGKILL
        # A member joins before the lease of the killed one has ended, and gets its shares afterwards.
        members.start("c")
        topic.write_many(records(401, 200))
        eventually(lambda: [member.shares for member in group.state().members] == [8, 8])
        topic.write_many(records(601, 400))
        eventually(lambda: group.state().lag == 0)
        said = members.stop("b")
        eventually(lambda: [member.shares for member in group.state().members] == [16])
        topic.write_many(records(1001, 200))
        eventually(lambda: group.state().lag == 0)
        said += members.stop("c")
        assert group.state().members == []
        lines = members.lines()

    assert {seq for _, seq, _ in lines} == set(range(1, 1201))
    first: dict[int, str] = {}
    again = []
    for node, seq, _ in lines:
        if seq in first:
            again.append((first[seq], node))
        first.setdefault(seq, node)
    if "lost" not in said:
        # Unless a machine was so busy that a lease ended: only what the killed member had not committed came twice.
        assert {before for before, _ in again} <= {"doomed"}
        assert 0 < len(again) <= PAGE
        by_tag: dict[str, list[int]] = defaultdict(list)
        for node, seq, tag in lines:
            if tag != "None" and first[seq] == node:
                by_tag[tag].append(seq)
        assert all(seqs == sorted(seqs) for seqs in by_tag.values())
    assert {node for node, seq, _ in lines if seq > 1000} == {"c"}


def test_a_member_that_lost_its_shares_cannot_commit(server: ServerProcess, name: str, tmp_path: Path) -> None:
    with Client(server.url) as client, members_of(server, name, tmp_path) as members:
        topic = client.topic(name)
        topic.write_many(records(1, 40))
        group = topic.consumer_group("group")
        stopped = members.start("stopped", "--commit-after", "5", "--lease-ms", "500")
        assert stopped.stdout is not None
        while stopped.stdout.readline() != "stopping\n":
            pass
        # It does nothing now, and its lease ends.
        eventually(lambda: group.state().members == [])
        with group.join(node="other") as member:
            found = [record.seq for record in member.records(until_end=True)]
            assert sorted(found) == list(range(1, 41))
            positions = [share.seq for share in group.state().shares]
            stopped.send_signal(signal.SIGCONT)
            said, _ = stopped.communicate(timeout=30)
            shares = sorted({share_of(record.tag, record.seq, 16) for record in topic.read() if record.seq <= 5})
            assert f"fenced {shares}" in said
            assert [share.seq for share in group.state().shares] == positions == [40] * 16
            assert {share.node for share in group.state().shares} == {"other"}


def test_members_survive_a_killed_server(mortal: ServerProcess, name: str) -> None:
    with Client(mortal.url) as client:
        topic = client.topic(name)
        topic.configure(durability="fsync")
        topic.write_many(records(1, 100))
        group = topic.consumer_group("group")
        with group.join(node="a", lease_ms=60_000) as member:
            found = member.records(size=10)
            seqs = [next(found).seq for _ in range(35)]
            mortal.kill()
            mortal.start(mortal.port)
            seqs += [record.seq for record in member.records(size=10, until_end=True)]
        # It has kept its shares: nothing was delivered twice.
        assert seqs == list(range(1, 101))
        assert group.state().lag == 0


class StartAgain(logging.Handler):
    """Starts a killed server again as soon as a member has not reached it."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._server = server
        self.is_killed = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if " retries: " in record.getMessage() and self.is_killed.is_set() and not self._server.running:
            self._server.start(self._server.port)


def test_a_read_that_fails_skips_nothing(mortal: ServerProcess, name: str) -> None:
    """The server is killed while the member waits for records, and the client does not repeat the read by itself."""
    handler = StartAgain(mortal)
    logger = logging.getLogger("strandline.client.group")
    with Client(mortal.url) as client, Client(mortal.url, patience=NO_PATIENCE) as impatient:
        topic = client.topic(name)
        topic.configure(durability="fsync")
        topic.write_many(records(1, 100))
        seqs: list[int] = []
        with impatient.topic(name).consumer_group("group").join(node="a", lease_ms=60_000) as member:

            def follow() -> None:
                seqs.extend(record.seq for record in member.records(size=10))

            thread = threading.Thread(target=follow)
            logger.addHandler(handler)
            try:
                thread.start()
                eventually(lambda: topic.consumer_group("group").state().lag == 0)
                mortal.kill()
                handler.is_killed.set()
                eventually(lambda: mortal.running)
                topic.write_many(records(101, 100))
                eventually(lambda: topic.consumer_group("group").state().lag == 0)
            finally:
                member.stop()
                thread.join(30)
                logger.removeHandler(handler)
        assert seqs == list(range(1, 201))
