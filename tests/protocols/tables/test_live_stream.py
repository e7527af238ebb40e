"""Live readers without a network: their sinks, the clock and the disk are in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from support.watch_sessions import ListSink

from strandline.delivery.hub import Hub
from strandline.engine import Engine, ManualClock
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.live_stream import LiveStream
from strandline.protocols.tables.routes import TablesProtocol
from strandline.protocols.tables.users import Users
from strandline.service.access import FULL_ACCESS
from strandline.service.http import Call, Head, Later
from strandline.service.kernel import Kernel
from strandline.service.limits import Slots
from strandline.service.live import HEARTBEAT_SECONDS
from strandline.tables import TableDeclaration, Tables, User, make_log

NOTE = make_log("note", parent="desk", schema={"type": "object"}, pub=True, soft_delete=True)


class Connection:
    def __init__(self, stream: LiveStream, full: bool) -> None:
        self.stream = stream
        self.sink = ListSink()
        self.sink.full = full
        stream.opened(self.sink)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.sink.events()]


class Stand:
    def __init__(self, engine: Engine, declarations: list[TableDeclaration]) -> None:
        self.engine = engine
        self.hub = Hub(ManualClock(1_700_000_000_000).now)
        self.slots = Slots(total=2)
        self.tables = Tables(engine, declarations)
        kernel = Kernel.for_tests(engine, self.hub, self.slots)
        self.live = kernel.live
        self.context = TablesContext(kernel, self.tables, Users(False, None))
        self.face = TablesProtocol(self.context)

    async def open(
        self, table: str, query: str, full: bool = False, variant: str = "pub", user: User | None = None
    ) -> Connection:
        head = Head("GET", f"/tables/{table}/{variant}/live", query, {})
        head.access = FULL_ACCESS
        head.memo = user
        answer: Any = self.face.live.handler(self.tables[table], variant, "live")(Call(head, b"", 0.0))
        if isinstance(answer, Later):
            answer = await answer
        connection = Connection(answer, full)
        await settle()
        return connection

    def append(self, table: str, parent: str, count: int, **payload: Any) -> None:
        for _ in range(count):
            self.tables[table].append(parent, payload, user="bob").wait()

    def pass_time(self, seconds: float) -> None:
        self.live.alarms.ring(self.hub.loop.time() + seconds)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def until(look: Callable[[], Any]) -> None:
    """Other threads have to get their turn."""
    for _ in range(2000):
        if look():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def on_a_stand(path: Path, scenario: Callable[[Stand], Awaitable[None]], *declarations: TableDeclaration) -> None:
    engine = Engine.open(path, background=False)

    async def run() -> None:
        stand = Stand(engine, list(declarations) or [NOTE])
        await scenario(stand)
        stand.context.workers.close()

    try:
        asyncio.run(run())
    finally:
        engine.close()


def test_a_reader_that_takes_nothing_gets_no_more_than_a_piece_and_then_the_rest(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        stand.append("note", "p", 700, text="x" * 50)
        reader = await stand.open("note", "parent=p", full=True)
        # The very first write says that it is full.
        assert reader.kinds() == []
        reader.sink.full = False
        reader.stream.resumed()
        reader.sink.full = True
        await settle()
        reader.sink.full = False
        reader.stream.resumed()
        await settle()
        events = reader.sink.events()
        assert [data["seq"] for kind, data in events if kind == "append"] == list(range(1, 701))
        assert events[-1] == ("ready", {"cursor": "700.0"})
        reader.stream.closed()

    on_a_stand(tmp_path, scenario)


def test_between_two_pieces_a_reader_may_pause(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        stand.append("note", "p", 600)
        reader = await stand.open("note", "parent=p", full=True)
        seen: list[int] = []
        for _ in range(4):
            reader.stream.resumed()
            await settle()
            page = [data["seq"] for kind, data in reader.sink.events() if kind == "append"]
            assert len(page) <= 256
            seen += page
        assert seen == list(range(1, 601))
        reader.stream.closed()

    on_a_stand(tmp_path, scenario)


def test_what_is_removed_while_a_reader_pauses_is_not_delivered(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        stand.append("note", "p", 300)
        reader = await stand.open("note", "parent=p", full=True)
        stand.tables["note"].purge_by_parent("p", hard=True).wait()
        await settle()
        reader.sink.full = False
        reader.stream.resumed()
        await settle()
        assert reader.sink.events() == [("purge", {"parent": "p", "soft": False}), ("ready", {"cursor": "300.1"})]
        reader.stream.closed()

    on_a_stand(tmp_path, scenario)


def test_silence_is_broken_and_a_reader_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        reader = await stand.open("note", "parent=p")
        reader.sink.blocks()
        stand.pass_time(HEARTBEAT_SECONDS)
        (block,) = reader.sink.blocks()
        assert block.comment is not None
        reader.sink.full = True
        stand.append("note", "p", 1)
        await settle()
        reader.sink.blocks()
        stand.pass_time(HEARTBEAT_SECONDS * 3)
        assert reader.sink.data == b""
        reader.stream.too_slow(1.0)
        ((kind, data),) = reader.sink.events()
        assert (kind, data["error"]["code"]) == ("end", "THROTTLED")
        stand.pass_time(1.1)
        assert reader.sink.aborted
        reader.stream.closed()
        assert (stand.slots.used, len(stand.live)) == (0, 0)

    on_a_stand(tmp_path, scenario)


def test_a_reader_whose_token_has_expired_must_come_again(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        stand.context.users = Users(False, lambda headers: None)
        expired = await stand.open("note", "parent=p", variant="auth", user=User("ann", expires_at=1))
        lasting = await stand.open("note", "parent=p", variant="auth", user=User("ann", expires_at=1 << 50))
        assert expired.kinds() == lasting.kinds() == ["ready"]
        stand.pass_time(HEARTBEAT_SECONDS)
        ((kind, data),) = expired.sink.events()
        assert (kind, data["error"]["code"]) == ("end", "NOT_AUTHENTICATED")
        assert (expired.sink.is_closed, lasting.sink.is_closed) == (True, False)

    on_a_stand(tmp_path, scenario)


def test_a_reader_that_does_not_take_the_last_word_is_cut_off(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        reader = await stand.open("note", "parent=p")
        stand.live.drain()
        assert reader.sink.is_closed
        assert not reader.sink.aborted
        stand.pass_time(6)
        assert reader.sink.aborted
        reader.stream.closed()

    on_a_stand(tmp_path, scenario)


def test_rows_that_are_not_in_memory_are_read_elsewhere(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        notes = Tables(engine, [NOTE])["note"]
        for at in range(400):
            notes.append("p", {"at": at}, user="bob").wait()
        for at in (3, 399):
            notes.update(f"p:{at}", {"at": -at}).wait()
        engine.maintain()

    async def scenario(stand: Stand) -> None:
        reader = await stand.open("note", "parent=p&after=0.0")
        await until(lambda: b"event: ready" in reader.sink.data)
        events = reader.sink.events()
        assert [data["seq"] for kind, data in events if kind == "append"] == list(range(1, 401))
        assert [(data["seq"], data["at"]) for kind, data in events if kind == "update"] == [(3, -3), (399, -399)]
        reader.stream.closed()

    on_a_stand(tmp_path, scenario)


def test_a_parent_that_is_kept_elsewhere_is_looked_at_again_and_again(tmp_path: Path) -> None:
    rooms: dict[str, dict[str, Any]] = {"r": {"userId": "ann", "open": True}}
    talk = make_log("talk", parent="room", schema={"type": "object"}, pub="open", parent_row=rooms.get)

    async def scenario(stand: Stand) -> None:
        reader = await stand.open("talk", "parent=r")
        stand.append("talk", "r", 1)
        await settle()
        assert reader.kinds() == ["ready", "append"]
        stand.pass_time(HEARTBEAT_SECONDS)
        await until(lambda: not reader.stream._busy)
        assert not reader.sink.is_closed
        rooms["r"]["open"] = False
        stand.pass_time(HEARTBEAT_SECONDS * 2)
        await until(lambda: reader.sink.is_closed)
        ((kind, data),) = reader.sink.events()
        assert (kind, data["error"]["code"]) == ("end", "NOT_FOUND")
        reader.stream.closed()

    on_a_stand(tmp_path, scenario, talk)


def test_a_failing_look_up_of_authors_ends_the_stream_with_a_word(tmp_path: Path) -> None:
    def nobody_knows(user: str) -> None:
        raise RuntimeError("the users cannot be looked up")

    talk = make_log("talk", parent="room", schema={"type": "object"}, pub=True, with_author=nobody_knows)

    async def scenario(stand: Stand) -> None:
        reader = await stand.open("talk", "parent=r")
        reader.sink.events()
        stand.append("talk", "r", 1)
        await until(lambda: reader.sink.is_closed)
        ((kind, data),) = reader.sink.events()
        assert (kind, data["error"]["code"]) == ("end", "INTERNAL")
        reader.stream.closed()

    on_a_stand(tmp_path, scenario, talk)


def test_those_at_the_same_place_share_what_is_rendered(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        readers = [await stand.open("note", "parent=p&user=bob"), await stand.open("note", "parent=p&user=eve")]
        stand.append("note", "p", 1, text="hello")
        await settle()
        for reader in readers:
            assert [kind for kind, _ in reader.sink.events()] == ["ready", "append"]
        assert len(stand.context.feeds) == 1
        for reader in readers:
            reader.stream.closed()
        assert len(stand.context.feeds) == 0

    on_a_stand(tmp_path, scenario)
