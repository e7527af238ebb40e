"""A WebSocket whose client does not keep up, with the connection in the hands of the test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.watch_sessions import WatchStand, on_a_stand, settle, write

from strandline.protocols.topics.websocket import MAX_WAITING_MESSAGES, TRY_AGAIN_LATER, Socket, WebSockets
from strandline.protocols.topics.write import TopicWrites
from strandline.service.access import FULL_ACCESS
from strandline.service.unread import UnreadBytes


class Line:
    """Both directions of a connection. While ``blocked`` nothing that the server sends gets through."""

    def __init__(self, stand: WatchStand) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[Any] = []
        self.free = asyncio.Event()
        self.free.set()
        self.sockets = WebSockets(stand.context, stand.watching, TopicWrites(stand.context))
        self.now = 0.0
        self.unread = UnreadBytes(timeout=30.0, now=lambda: self.now)
        serving = self.sockets.serve(self.accept, self.incoming.get, self.send, FULL_ACCESS, self.unread)
        self.task = asyncio.ensure_future(serving)

    async def accept(self) -> None:
        pass

    async def send(self, message: Any) -> None:
        await self.free.wait()
        closes = message["type"] == "websocket.close"
        self.sent.append(message["code"] if closes else msgspec.json.decode(message["text"]))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.unread.sweep()

    def say(self, **command: Any) -> None:
        text = msgspec.json.encode(command).decode()
        self.incoming.put_nowait({"type": "websocket.receive", "text": text})

    async def hang_up(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect"})
        await self.task


def test_no_more_than_a_few_messages_wait_and_the_rest_comes_from_the_log(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        line = Line(stand)
        line.say(op="subscribe", topic="a")
        await settle()
        line.free.clear()
        for number in range(100):
            write(topic, number)
            await settle()
        line.sent.clear()
        line.free.set()
        await settle()
        records = [message for message in line.sent if message["op"] == "record"]
        assert len(records) <= MAX_WAITING_MESSAGES
        assert [one["data"] for record in records for one in record["records"]] == list(range(100))
        await line.hang_up()
        assert len(stand.watching.feeds) == 0
        assert len(stand.live) == 0

    on_a_stand(tmp_path, scenario)


def test_no_command_is_read_while_the_answers_are_not_taken(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        line = Line(stand)
        line.free.clear()
        for number in range(200):
            line.say(op="ping", request_id=number)
        await settle()
        assert line.incoming.qsize() >= 200 - MAX_WAITING_MESSAGES - 1
        line.free.set()
        while len(line.sent) < 200:
            await settle()
        assert [message["request_id"] for message in line.sent] == list(range(200))
        await line.hang_up()

    on_a_stand(tmp_path, scenario)


@pytest.mark.parametrize("reads_on", [True, False])
def test_a_client_that_takes_nothing_for_too_long_is_cut_off(tmp_path: Path, reads_on: bool) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        line = Line(stand)
        line.say(op="subscribe", topic="a")
        await settle()
        line.free.clear()
        for number in range(MAX_WAITING_MESSAGES + 2):
            write(topic, number)
            await settle()
        line.pass_time(29)
        await settle()
        assert stand.live.count(Socket) == 1
        line.sent.clear()
        line.pass_time(2)
        assert len(stand.watching.feeds) == 0
        if reads_on:
            line.free.set()
            await settle()
            # What the server was sending at that moment, and why it sends no more.
            assert line.sent[-1] == TRY_AGAIN_LATER
            assert len(line.sent) <= 2
            await line.hang_up()
        else:
            await asyncio.wait_for(line.task, 10)
        assert len(stand.live) == 0

    on_a_stand(tmp_path, scenario)


def test_a_client_that_takes_everything_in_time_is_left_alone(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        line = Line(stand)
        line.say(op="subscribe", topic="a")
        await settle()
        line.free.clear()
        for number in range(MAX_WAITING_MESSAGES + 2):
            write(topic, number)
            await settle()
        line.free.set()
        await settle()
        line.pass_time(31)
        await settle()
        assert not line.task.done()
        await line.hang_up()

    on_a_stand(tmp_path, scenario)
