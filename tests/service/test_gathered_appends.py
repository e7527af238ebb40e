"""Appends that arrive in one turn of the event loop and become one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from strandline.engine import Appended, Batch
from strandline.service import gathered_appends
from strandline.service.gathered_appends import (
    AppendGroup,
    BatchAppend,
    GatheredAppends,
    join_batches,
    settle_batches,
)
from strandline.service.http import Reply

Groups = list[tuple[str, list[BatchAppend], int]]


def append(*payloads: bytes) -> BatchAppend:
    return BatchAppend(Batch(payloads))


def turned(test: Callable[[GatheredAppends[str, BatchAppend], Groups], Awaitable[None]]) -> None:
    """Run a test; it gets the groups as they are appended."""

    async def run() -> None:
        groups: Groups = []

        def note(log: str, group: AppendGroup[BatchAppend]) -> None:
            groups.append((log, group.appends, group.size))

        await test(GatheredAppends(asyncio.get_running_loop(), note), groups)

    asyncio.run(run())


async def turn() -> None:
    await asyncio.sleep(0)


def test_appends_of_one_turn_are_a_group_per_log() -> None:
    async def test(gathered: GatheredAppends[str, BatchAppend], groups: Groups) -> None:
        first, a, b, c = (append(b"1") for _ in range(4))
        # The turn before had at most one, so the first of this one does not wait.
        assert not gathered.take("x", first, 1)
        assert gathered.take("x", a, 10)
        assert gathered.take("y", b, 20)
        assert gathered.take("x", c, 30)
        assert (groups, gathered.count, gathered.size) == ([], 3, 60)
        await turn()
        assert groups == [("x", [a, c], 40), ("y", [b], 20)]
        assert (gathered.count, gathered.size) == (0, 0)

    turned(test)


def test_after_a_busy_turn_the_first_waits_as_well() -> None:
    async def test(gathered: GatheredAppends[str, BatchAppend], groups: Groups) -> None:
        assert [gathered.take("x", append(b"1"), 1) for _ in range(2)] == [False, True]
        await turn()
        assert gathered.take("x", append(b"1"), 1)
        await turn()
        assert len(groups) == 2
        # That one was alone, so the next one is expected to be alone, too.
        assert not gathered.take("x", append(b"1"), 1)

    turned(test)


def test_a_large_group_does_not_wait_for_the_end_of_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_appends, "MAX_GATHERED_BYTES", 100)

    async def test(gathered: GatheredAppends[str, BatchAppend], groups: Groups) -> None:
        gathered.take("x", append(b"1"), 1)
        assert gathered.take("x", append(b"1"), 100)
        assert groups == []
        assert gathered.take("x", append(b"1"), 1)
        assert [size for _, _, size in groups] == [101]
        assert (gathered.count, gathered.size) == (0, 0)

    turned(test)


def test_what_was_gathered_for_a_log_can_be_appended_first() -> None:
    async def test(gathered: GatheredAppends[str, BatchAppend], groups: Groups) -> None:
        gathered.take("x", append(b"1"), 1)
        for log in "xy":
            gathered.take(log, append(b"1"), 1)
        gathered.append_now("x")
        gathered.append_now("z")
        assert [log for log, _, _ in groups] == ["x"]
        await turn()
        assert [log for log, _, _ in groups] == ["x", "y"]

    turned(test)


def test_each_append_gets_its_part_of_the_result() -> None:
    appends = [append(b"a"), append(b"b", b"c"), append(b"d")]
    parts: list[Appended] = []

    def reply(each: BatchAppend, part: Appended) -> Reply:
        parts.append(part)
        return Reply(b"%d" % part.first)

    settle_batches(appends, Appended(7, 10, 99), reply)
    assert parts == [Appended(7, 7, 99), Appended(8, 9, 99), Appended(10, 10, 99)]
    assert [each.result().body for each in appends if isinstance(each.answer, Reply)] == [b"7", b"8", b"10"]  # type: ignore[union-attr]


def test_a_group_that_fails_fails_for_all() -> None:
    group: AppendGroup[BatchAppend] = AppendGroup()
    group.appends += [append(b"a"), append(b"b")]
    group.fail(ValueError("full"))
    for each in group.appends:
        with pytest.raises(ValueError, match="full"):
            each.result()


def test_joined_batches_have_the_columns_of_all() -> None:
    alone = Batch([b"a"])
    assert join_batches([alone]) is alone
    joined = join_batches([alone, Batch([b"b", b"c"], keys=["k", None]), Batch([b"d"], metas=[b"{}"])])
    assert list(joined.data) == [b"a", b"b", b"c", b"d"]
    assert joined.keys == [None, "k", None, None]
    assert joined.metas == [None, None, None, b"{}"]
    assert joined.nodes is None
