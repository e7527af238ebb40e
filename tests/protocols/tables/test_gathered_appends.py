"""Appends to one parent that arrive in one turn of the event loop share a step, and each is answered as if it were
alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from strandline.delivery.hub import Hub
from strandline.engine import Config, Engine, Options
from strandline.engine.errors import LogFull
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.users import Users
from strandline.protocols.tables.write import TableWrites
from strandline.service.access import FULL_ACCESS
from strandline.service.admission import reply_of
from strandline.service.http import Call, Head, Reply
from strandline.service.kernel import Kernel
from strandline.tables import RateLimit, TableDeclaration, TableError, Tables, make_log

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Writer:
    """The writes of one table, without sockets."""

    def __init__(self, engine: Engine, declaration: TableDeclaration) -> None:
        self.engine = engine
        tables = Tables(engine, [declaration])
        self.table = tables[declaration.name]
        self.context = TablesContext(Kernel.for_tests(engine, Hub(engine.now)), tables, Users(False, None))
        self.writes = TableWrites(self.context, self.table)

    def append(self, parent: str, payload: object, user: str = "ann", **members: object) -> asyncio.Future[Any]:
        """The answer to a request that arrives now, or its error."""
        body = msgspec.json.encode({"parent": parent, "payload": payload, **members})
        headers: Mapping[bytes, bytes] = {b"strandline-user": user.encode()}
        call = Call(Head("POST", "/tables/vote/append", "", headers), body, 0.0)
        call.head.access = FULL_ACCESS
        try:
            answer = self.writes.append(call)
        except TableError as error:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_result(error)
            return refused

        async def decoded() -> Any:
            try:
                return msgspec.json.decode((await reply_of(answer)).body)
            except (TableError, LogFull) as error:
                return error

        return asyncio.ensure_future(decoded())

    async def rows(self, parent: str) -> list[tuple[str | None, int]]:
        return [(row.user, row.payload["n"]) for row in self.table.list_after(parent, 0).rows]


def written(path: Path, test: Callable[[Writer], Awaitable[None]], durability: Any = "fsync", **options: Any) -> None:
    async def run() -> None:
        declaration = make_log("vote", parent="poll", schema=SCHEMA, durability=durability, **options)
        with Engine.open(path, Options()) as engine:
            await test(Writer(engine, declaration))

    asyncio.run(run())


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_they_share_a_frame_per_parent(tmp_path: Path, durability: str) -> None:
    async def test(writer: Writer) -> None:
        for parent in "pq":
            await writer.append(parent, {"n": 0})
        frames = writer.engine.stats().frames
        # The first does not wait for others.
        answers = [writer.append("p", {"n": number}, user) for number, user in enumerate(["ann", "bob", "eve"], 1)]
        answers += [writer.append("q", {"n": number}) for number in (4, 5)]
        assert [answer["seq"] for answer in await asyncio.gather(*answers)] == [2, 3, 4, 2, 3]
        assert writer.engine.stats().frames == frames + 3
        assert await writer.rows("p") == [("ann", 0), ("ann", 1), ("bob", 2), ("eve", 3)]
        assert await writer.rows("q") == [("ann", 0), ("ann", 4), ("ann", 5)]

    written(tmp_path, test, durability)


def test_an_error_and_a_repetition_concern_no_other(tmp_path: Path) -> None:
    async def test(writer: Writer) -> None:
        answers = [
            writer.append("p", {"n": 1}),
            writer.append("p", {"n": 2}, idempotencyKey="k"),
            writer.append("p", {"n": "three"}),
            writer.append("p", {"n": 4}, "bob", idempotencyKey="k"),
            writer.append("p", {"n": 5}),
        ]
        first, second, wrong, again, last = await asyncio.gather(*answers)
        assert [(each["seq"], each["created"]) for each in (first, second, again, last)] == [
            (1, True), (2, True), (2, False), (3, True),
        ]  # fmt: skip
        assert (wrong.code, wrong.more["fields"]) == ("VALIDATION_FAILED", ["n"])
        assert await writer.rows("p") == [("ann", 1), ("ann", 2), ("ann", 5)]

    written(tmp_path, test)


def test_if_not_all_fit_some_are_appended(tmp_path: Path) -> None:
    async def test(writer: Writer) -> None:
        await writer.append("p", {"n": 0})
        log = writer.engine.log("vote/p")
        log.configure(Config(durability="fsync", cap_records=3, discard="reject")).wait()
        answers = await asyncio.gather(*(writer.append("p", {"n": number}) for number in range(1, 6)))
        assert [isinstance(answer, LogFull) for answer in answers] == [False, False, True, True, True]
        assert await writer.rows("p") == [("ann", 0), ("ann", 1), ("ann", 2)]

    written(tmp_path, test)


def test_a_rate_limit_counts_each(tmp_path: Path) -> None:
    async def test(writer: Writer) -> None:
        answers = await asyncio.gather(*(writer.append("p", {"n": number}) for number in range(5)))
        assert [isinstance(answer, TableError) and answer.code for answer in answers] == [
            False, False, "RATE_LIMITED", "RATE_LIMITED", "RATE_LIMITED",
        ]  # fmt: skip
        assert await writer.rows("p") == [("ann", 0), ("ann", 1)]

    written(tmp_path, test, rate_limit=RateLimit(2, 60_000))


def test_behind_a_write_of_the_writer_thread_they_are_made_there(tmp_path: Path) -> None:
    async def test(writer: Writer) -> None:
        await writer.append("p", {"n": 0})
        answers = [writer.append("p", {"n": number}) for number in (1, 2, 3)]
        # The thread gets work before the turn ends.
        swept = writer.context.write_elsewhere(
            lambda: writer.table.purge_by_parent("p"),
            lambda made: writer.context.admission.after(made.commit, lambda _: Reply(b"")),
        )
        assert [answer["seq"] for answer in await asyncio.gather(*answers)] == [2, 3, 4]
        await swept
        assert await writer.rows("p") == [("ann", 2), ("ann", 3)]

    written(tmp_path, test)
