"""The rules of sessions and streams in which time or a slow reader has a part."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.watch_sessions import WatchStand, on_a_stand, settle, write

from strandline.protocols.topics.event_frames import decode_cursor
from strandline.service.access import Access
from strandline.service.problems import Refusal


def test_heartbeats_come_only_when_nothing_else_did(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        connection = stand.open(stand.watch(topics={"a": {}}, heartbeat_ms=15000))
        connection.sink.blocks()
        stand.pass_time(14)
        assert connection.sink.blocks() == []
        stand.pass_time(15.1)
        assert [block.comment for block in connection.sink.blocks()] == [f"hb {stand.clock.now()}"]
        # The heartbeat was sent just now, as far as the loop's own clock knows; so is this:
        write(topic, 1)
        await settle()
        connection.sink.blocks()
        stand.pass_time(14)
        assert connection.sink.blocks() == []

    on_a_stand(tmp_path, scenario)


@pytest.mark.parametrize(("asked", "seconds"), [(1, 1.0), (90_000, 60.0)])
def test_heartbeats_are_clamped(tmp_path: Path, asked: int, seconds: float) -> None:
    async def scenario(stand: WatchStand) -> None:
        stand.topic("a")
        connection = stand.open(stand.watch(topics={"a": {}}, heartbeat_ms=asked))
        connection.sink.blocks()
        stand.pass_time(seconds - 0.5)
        assert connection.sink.blocks() == []
        stand.pass_time(seconds + 0.1)
        assert len(connection.sink.blocks()) == 1

    on_a_stand(tmp_path, scenario)


def test_a_reader_that_does_not_keep_up_is_not_written_to_and_gets_larger_frames_later(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        connection = stand.open(stand.watch(topics={"a": {}}))
        connection.sink.full = True
        write(topic, "first")
        await settle()
        connection.sink.blocks()
        for number in range(5):
            write(topic, number)
            await settle()
        stand.pass_time(20)
        assert connection.sink.data == b""  # not even a heartbeat
        connection.resume()
        await settle()
        [(kind, frame), (after, _)] = connection.sink.events()
        assert (kind, after) == ("record", "caught-up")
        assert [record["data"] for record in frame["records"]] == [0, 1, 2, 3, 4]

    on_a_stand(tmp_path, scenario)


def test_a_reader_that_takes_nothing_for_too_long_is_told_and_cut_off_and_the_session_stays(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        wid = stand.watch(topics={"a": {}})
        connection = stand.open(wid)
        [block] = [block for block in connection.sink.blocks() if block.event == "caught-up"]
        connection.sink.full = True
        write(topic, 1, 2)
        await settle()
        connection.sink.blocks()
        connection.stream.too_slow(5.0)
        [(kind, error)] = connection.sink.events()
        assert (kind, error["code"]) == ("error", 408)
        assert connection.sink.is_closed
        # The client does not even take that.
        assert not connection.sink.aborted
        stand.pass_time(6)
        assert connection.sink.aborted
        connection.close()
        assert stand.slots.used == 0
        again = stand.open(wid, last_event_id=block.id or "")
        frames = [frame for kind, frame in again.sink.events() if kind == "record"]
        assert [record["data"] for frame in frames for record in frame["records"]] == [1, 2]

    on_a_stand(tmp_path, scenario)


def test_a_loss_after_the_grace_is_the_readers_own_lateness(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a", cap_records=1)
        connection = stand.open(stand.watch(topics={"a": {}}))
        for late_by, reason in ((0.0, "cap"), (6.0, "from_seq_too_old")):
            connection.sink.full = True
            write(topic, "seen")
            await settle()
            write(topic, "lost", "kept")
            await settle()
            connection.sink.blocks()
            connection.stream.paused_at -= late_by
            connection.resume()
            await settle()
            assert [frame["reason"] for kind, frame in connection.sink.events() if kind == "tombstone"] == [reason]

    on_a_stand(tmp_path, scenario, slow_consumer_grace_ms=5000)


def test_two_streams_of_a_session_share_its_cursors(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        write(topic, 0)
        wid = stand.watch(topics={"a": {}})
        one, two = stand.open(wid), stand.open(wid)
        assert [kind for kind, _ in one.sink.events()] == ["record", "caught-up"]
        assert [kind for kind, _ in two.sink.events()] == ["caught-up"]
        for number in range(1, 5):
            write(topic, number)
            await settle()
        got = [
            [
                record["data"]
                for kind, frame in connection.sink.events()
                if kind == "record"
                for record in frame["records"]
            ]
            for connection in (one, two)
        ]
        assert sorted(got[0] + got[1]) == [1, 2, 3, 4]
        assert all(got)
        # What one does not take, the other gets.
        one.sink.full = two.sink.full = False
        one.close()
        write(topic, 5)
        await settle()
        assert [kind for kind, _ in two.sink.events()] == ["record", "caught-up"]

    on_a_stand(tmp_path, scenario)


def test_a_topic_that_is_written_to_all_the_time_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        busy, quiet = stand.topic("busy"), stand.topic("quiet")
        write(busy, *range(4))
        write(quiet, "q")
        connection = stand.open(stand.watch(topics={"busy": {}, "quiet": {}}, limit=2))
        connection.sink.blocks()
        connection.close()
        wid = stand.watch(topics={"busy": {}, "quiet": {}}, limit=2)
        # The reader takes one frame at a time, and as many records are written in the meantime.
        seen: list[str] = []
        again = stand.open(wid)
        again.sink.full = True
        for _ in range(6):
            seen += [frame["topic"] for kind, frame in again.sink.events() if kind == "record"]
            write(busy, "more", "and more")
            again.resume()
            again.sink.full = True
            await settle()
        assert "quiet" in seen

    on_a_stand(tmp_path, scenario)


def test_sessions_without_a_stream_are_forgotten_when_another_is_made_or_opened(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        stand.topic("a")
        idle, used = stand.watch(topics={"a": {}}), stand.watch(topics={"a": {}})
        connection = stand.open(used)
        with pytest.raises(Refusal) as refused:
            stand.watch(topics={"a": {}})
        assert refused.value.status == 429
        assert refused.value.detail == {"limit": "max_watch_sessions", "max": 2}
        stand.clock.advance(1001)
        stand.watch(topics={"a": {}})  # in the place of the idle one
        assert stand.watching.sessions == 2
        with pytest.raises(Refusal) as gone:
            stand.open(idle)
        assert (gone.value.status, gone.value.code) == (404, "not_found")
        # Its time begins when the stream ends.
        connection.close()
        stand.clock.advance(1000)
        stand.open(used).close()
        stand.clock.advance(1001)
        with pytest.raises(Refusal):
            stand.open(used)
        assert stand.watching.sessions == 0

    on_a_stand(tmp_path, scenario, session_ttl_ms=1000, max_watch_sessions=2)


def test_no_more_streams_than_there_are_slots(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        stand.topic("a")
        wid = stand.watch(topics={"a": {}})
        connections = [stand.open(wid), stand.open(wid)]
        with pytest.raises(Refusal) as refused:
            stand.open(wid)
        assert (refused.value.status, refused.value.code, refused.value.detail) == (429, "throttled", None)
        connections[0].close()
        assert stand.slots.used == 1
        stand.open(wid)

    on_a_stand(tmp_path, scenario)


def test_only_the_key_that_made_a_session_opens_it(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        stand.topic("a")
        maker, other = (Access(name, frozenset({"read"}), ()) for name in ("maker", "other"))
        wid = stand.watch(maker, topics={"a": {}})
        for access in (other, Access("", frozenset(), ())):
            with pytest.raises(Refusal) as refused:
                stand.open(wid, access)
            assert refused.value.status == 401
        stand.open(wid, maker)

    on_a_stand(tmp_path, scenario)


def test_a_busy_server_says_which_topic_it_holds_back(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        low, high = stand.topic("low", priority=-5), stand.topic("high", priority=5)
        connection = stand.open(stand.watch(topics={"low": {}, "high": {}}))
        connection.sink.blocks()
        stand.pressure.shedding = True
        write(low, 1)
        write(high, 2)
        await settle()
        events = connection.sink.events()
        [error] = [frame for kind, frame in events if kind == "error"]
        assert (error["code"], error["topics"]) == (429, ["low"])
        assert error["retry_after_ms"] > 0
        assert [frame["topic"] for kind, frame in events if kind == "record"] == ["high"]
        assert not connection.sink.is_closed

    on_a_stand(tmp_path, scenario)


def test_a_topic_that_is_held_back_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        write(stand.topic("a", priority=-5), 1)
        write(stand.topic("b", priority=5), 2)
        stand.pressure.shedding = True
        connection = stand.open(stand.watch(topics={"a": {}, "b": {}}))
        await settle()
        assert [frame["topic"] for kind, frame in connection.sink.events() if kind != "error"] == ["b", "b"]
        stand.pressure.shedding = False
        stand.watching.feeds.retry()
        await settle()
        assert [(kind, frame["topic"]) for kind, frame in connection.sink.events()] == [
            ("record", "a"),
            ("caught-up", "a"),
        ]

    on_a_stand(tmp_path, scenario)


def test_a_topic_that_is_made_again_at_once_is_covered_again(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        old = stand.topic("a")
        connection = stand.open(stand.watch(topics={"a*": {}}))
        connection.sink.blocks()
        # Nobody has heard of the end yet when the new one is made.
        stand.context.kernel.catalog.drop(old.log)
        write(stand.topic("a"), "new")
        await settle()
        assert [kind for kind, _ in connection.sink.events()] == ["topic-deleted", "record", "caught-up"]

    on_a_stand(tmp_path, scenario)


def test_a_session_whose_topics_are_all_gone_says_so(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        topic = stand.topic("a")
        write(topic, 1)
        wid = stand.watch(topics={"a": {}})
        stand.context.kernel.catalog.drop(topic.log)
        connection = stand.open(wid)
        assert connection.sink.events() == [("topic-deleted", {"topic": "a", "head_seq": 1, "reason": "deleted"})]
        assert connection.sink.is_closed
        connection.close()
        again = stand.open(wid)
        [(kind, error)] = again.sink.events()
        assert (kind, error["code"]) == ("error", 410)
        assert again.sink.is_closed

    on_a_stand(tmp_path, scenario)


def test_a_topic_that_was_made_anew_while_nobody_looked_begins_with_a_loss(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        old = stand.topic("a")
        write(old, 1, 2)
        wid = stand.watch(topics={"a": {"tail": True}})
        stand.context.kernel.catalog.drop(old.log)
        write(stand.topic("a"), "new 1", "new 2", "new 3")
        connection = stand.open(wid)
        blocks = [block for block in connection.sink.blocks() if block.event is not None]
        assert [block.event for block in blocks] == ["tombstone", "record", "caught-up"]
        assert blocks[0].json["reason"] == "from_seq_too_old"
        # Whoever comes back right after the loss misses nothing.
        assert decode_cursor(blocks[0].id or "") == {"a": 0}
        assert [record["data"] for record in blocks[1].json["records"]] == ["new 1", "new 2", "new 3"]

    on_a_stand(tmp_path, scenario)


def test_an_idle_session_costs_no_wake_ups(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        stand.topic("a")
        wid = stand.watch(topics={"a": {}, "b*": {}})
        connection = stand.open(wid)
        assert len(stand.watching.feeds) == 1
        assert stand.context.kernel.catalog.created
        connection.close()
        assert len(stand.watching.feeds) == 0
        assert not stand.context.kernel.catalog.created
        # Topics that came meanwhile are found when somebody looks again.
        write(stand.topic("bee"), 1)
        again = stand.open(wid)
        assert [(kind, frame["topic"]) for kind, frame in again.sink.events()] == [
            ("caught-up", "a"),
            ("record", "bee"),
            ("caught-up", "bee"),
        ]

    on_a_stand(tmp_path, scenario)


def test_a_pattern_takes_no_more_topics_than_may_be_watched(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        stand.topic("a1")
        connection = stand.open(stand.watch(topics={"a*": {}}))
        connection.sink.blocks()
        stand.topic("a2")
        await settle()
        assert connection.sink.events() == [("caught-up", {"topic": "a2", "head_seq": 0})]
        stand.topic("a3")
        await settle()
        [(kind, error)] = connection.sink.events()
        assert (kind, error["code"], error["topics"]) == ("error", 429, ["a3"])
        with pytest.raises(Refusal) as refused:
            stand.watch(topics={"a*": {}})
        assert refused.value.code == "invalid_request"

    on_a_stand(tmp_path, scenario, max_watch_topics=2)


def test_a_stream_that_has_ended_is_cut_off_only_if_its_reader_does_not_take_the_rest(tmp_path: Path) -> None:
    async def scenario(stand: WatchStand) -> None:
        stand.topic("a")
        wid = stand.watch(topics={"a": {}}, heartbeat_ms=1000)
        prompt, stuck = stand.open(wid), stand.open(wid)
        stand.live.drain()
        assert prompt.sink.is_closed
        prompt.close()
        stand.pass_time(1.5)  # a heartbeat would be due
        assert not stuck.sink.aborted
        stand.pass_time(6)
        assert stuck.sink.aborted
        assert not prompt.sink.aborted

    on_a_stand(tmp_path, scenario)
