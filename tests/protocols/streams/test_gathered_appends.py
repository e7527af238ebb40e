"""Small appends of one turn of the event loop share a commit, and each is answered as if it were alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support.streams_client import JSON, TEXT
from support.streams_in_process import HandServer, by_hand

from strandline.engine import Config
from strandline.engine.ownership import REGISTRY
from strandline.protocols.streams.offsets import encode

CLOSE = {"stream_closed": "true"}


def test_they_share_a_frame_and_have_offsets_of_their_own(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        await server.done("PUT", "t")
        frames = server.engine.stats().frames
        keyed = {"stream_key": "k"}
        asked = [server.ask("POST", "s", b"%d" % number, **(keyed if number % 2 else {})) for number in range(1, 5)]
        several = server.ask("POST", "s", b"[5, 6, 7]")
        other = server.ask("POST", "t", b"[8]")
        await server.turns()
        # One for the first, which does not wait for others, one for the others, and one for the other stream.
        assert server.engine.stats().frames == frames + 3
        assert [each.status for each in (*asked, several, other)] == [None] * 6
        await server.flush()
        assert [each.headers["stream-next-offset"] for each in asked] == [encode(seq) for seq in range(1, 5)]
        assert several.headers["stream-next-offset"] == encode(7)
        assert (other.status, other.headers["stream-next-offset"]) == (204, encode(1))
        assert msgspec.json.decode(server.ask("GET", "s").body) == [1, 2, 3, 4, 5, 6, 7]
        assert msgspec.json.decode(server.ask("GET", "s?key=k").body) == [1, 3]
        records, waits = (server.context.meters.by_name[name][1].take() for name in ("append.records", "append.wait"))
        # The two streams that were made have waited as well.
        assert (records.number, records.total, waits.number) == (6, 8, 8)

    by_hand(tmp_path, test)


def test_a_wrong_one_spoils_no_other(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        right = [server.ask("POST", "s", b"1") for _ in range(2)]
        wrong = [server.ask("POST", "s", b"{"), server.ask("POST", "s", b"1", TEXT), server.ask("POST", "s", b"")]
        right.append(server.ask("POST", "s", b"2"))
        assert [each.status for each in wrong] == [400, 409, 400]
        await server.turns()
        await server.flush()
        assert [each.status for each in right] == [204] * 3
        assert server.ask("GET", "s").body == b"[1,1,2]"

    by_hand(tmp_path, test)


def test_what_follows_them_comes_after_them(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        appends = [server.ask("POST", "s", b"%d" % number) for number in range(3)]
        producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
        last = server.ask("POST", "s", b"3", **producer)
        appends += [server.ask("POST", "s", b"4")]
        closing = server.ask("POST", "s", **CLOSE)
        late = server.ask("POST", "s", b"5")
        assert (late.status, late.headers["stream-next-offset"]) == (409, encode(5))
        await server.turns()
        await server.flush()
        assert [each.status for each in (*appends, last, closing)] == [204, 204, 204, 204, 200, 204]
        assert server.ask("GET", "s").body == b"[0,1,2,3,4]"

    by_hand(tmp_path, test)


def test_rules_that_come_in_the_same_turn_are_kept(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        await server.done("PUT", "t")
        busy = [server.ask("POST", "t", b"1") for _ in range(2)]
        await server.turns()
        # After a turn with several appends, the first of the next turn waits as well.
        appends = [server.ask("POST", "s", body) for body in (b'{"n":1}', b'{"n":"x"}', b'{"n":2}')]
        schema = {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
        stream = server.streams.get("s")
        registry = stream.registry.update(msgspec.json.encode(schema), next_sequence=stream.end)
        stream.log.note({REGISTRY: registry.note()})
        for each in (*busy, *appends):
            await server.settled(each)
        assert [each.status for each in appends] == [204, 400, 204]
        assert server.ask("GET", "s").body == b'[{"n":1},{"n":2}]'

    by_hand(tmp_path, test)


def test_a_stream_that_goes_in_the_same_turn_takes_none(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        appends = [server.ask("POST", "s", b"1") for _ in range(3)]
        deleted = server.ask("DELETE", "s")
        await server.turns()
        await server.flush()
        assert deleted.status == 204
        assert [each.status for each in appends[1:]] == [404, 404]
        # Hidden for its forks, and gone.
        await server.done("PUT", "t")
        await server.done("POST", "t", b"1")
        await server.done("PUT", "fork", stream_forked_from="/v1/stream/t")
        appends = [server.ask("POST", "t", b"1") for _ in range(3)]
        deleted = server.ask("DELETE", "t")
        await server.turns()
        await server.flush()
        assert deleted.status == 204
        assert [each.status for each in appends[1:]] == [410, 410]

    by_hand(tmp_path, test)


def test_if_not_all_fit_some_are_appended(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        server.engine.create("s", Config(durability="disk", cap_records=3, discard="reject")).wait()
        appends = [server.ask("POST", "s", b"%d" % number, JSON) for number in range(5)]
        await server.turns()
        await server.flush()
        statuses = [each.status for each in appends]
        assert statuses[:3] == [204] * 3
        assert statuses[3] == statuses[4]
        assert statuses[3] is not None
        assert statuses[3] >= 400
        assert server.ask("GET", "s").body == b"[0,1,2]"

    by_hand(tmp_path, test)


def test_they_are_answered_in_time(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        appends = [server.ask("POST", "s", b"1") for _ in range(4)]
        await server.turns()
        assert (server.context.appends.count, server.context.appends.size) == (4, 4)
        await server.later(3.2)
        assert [(each.status, each.code) for each in appends] == [(408, "append_timeout")] * 4
        await server.flush()
        assert (server.context.appends.count, server.context.appends.size) == (0, 0)
        assert server.ask("GET", "s").body == b"[1,1,1,1]"

    by_hand(tmp_path, test)
