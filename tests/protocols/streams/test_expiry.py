"""Time to live, on clocks that are turned by hand: what starts it anew, what ends, and what outlives what."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.streams_client import JSON, TEXT
from support.streams_in_process import NOW, HandServer, by_hand

from strandline.engine import ManualClock
from strandline.engine.errors import DiskFull
from strandline.protocols.streams.grammar import iso
from strandline.protocols.streams.offsets import encode

PRODUCER = {"producer_id": "p", "producer_epoch": "0"}


async def exists(server: HandServer, name: str) -> bool:
    return (await server.done("HEAD", name)).status == 200


def test_a_stream_that_nobody_uses_expires_to_the_millisecond(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        made = await server.done("PUT", "s", b"x", TEXT, stream_ttl="60")
        assert made.headers["stream-ttl"] == "60"
        assert made.headers["stream-expires-at"] == iso(NOW + 60_000)
        server.clock.advance(59_999)
        assert await exists(server, "s")
        server.clock.advance(1)
        for method in ("HEAD", "GET", "POST", "DELETE"):
            assert (await server.done(method, "s", b"x" if method == "POST" else b"")).status == 404
        assert (await server.done("PUT", "s", b"[1]", JSON)).status == 201
        assert server.ask("GET", "s").body == b"[1]"

    by_hand(tmp_path, test)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", "s", b"", {}),
        ("GET", "s?offset=now", b"", {}),
        ("GET", f"s?offset={encode(9)}", b"", {}),
        ("GET", "s?offset=-1&live=long-poll", b"", {}),
        ("GET", "s?offset=-1&live=sse", b"", {}),
        ("POST", "s", b"y", {}),
        ("POST", "s", b"", {"stream_closed": "true"}),
        ("POST", "s", b"", {"stream_closed": "true", **PRODUCER, "producer_seq": "1"}),
        ("POST", "s", b"first", {**PRODUCER, "producer_seq": "0"}),
    ],
)
def test_reading_and_writing_start_it_anew(
    tmp_path: Path, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT, stream_ttl="60")
        await server.done("POST", "s", b"first", TEXT, **PRODUCER, producer_seq="0")
        for _ in range(3):
            server.clock.advance(50_000)
            asked = server.ask(method, path, body, TEXT, **headers)
            await server.flush()
            if asked.stream is not None:
                asked.close()
            else:
                assert asked.status in (200, 204, 409), asked.body
            if method == "POST" and not body:
                break
        assert (await server.done("HEAD", "s")).headers["stream-expires-at"] == iso(server.clock.now() + 60_000)
        server.clock.advance(60_000)
        assert not await exists(server, "s")

    by_hand(tmp_path, test)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("HEAD", "s", b"", {}),
        ("GET", "s?offset=nonsense", b"", {}),
        ("POST", "s", b"y", {"content_type": JSON}),
        ("POST", "s", b"y", {"stream_seq": "0"}),
        ("POST", "s", b"y", {**PRODUCER, "producer_seq": "7"}),
        ("PUT", "s", b"", {"content_type": JSON}),
    ],
)
def test_looking_and_what_is_refused_do_not(
    tmp_path: Path, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT, stream_ttl="60")
        await server.done("POST", "s", b"x", TEXT, stream_seq="5")
        server.clock.advance(50_000)
        sent = {"content_type": TEXT, **headers}
        assert (await server.done(method, path, body, **sent)).status in (200, 400, 409)
        server.clock.advance(10_000)
        assert not await exists(server, "s")

    by_hand(tmp_path, test)


def test_nothing_puts_off_an_instant(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT, stream_expires_at=iso(NOW + 60_000))
        for _ in range(3):
            server.clock.advance(19_000)
            assert (await server.done("GET", "s")).headers["stream-expires-at"] == iso(NOW + 60_000)
            await server.done("POST", "s", b"y", TEXT)
        server.clock.advance(2_999)
        assert await exists(server, "s")
        server.clock.advance(1)
        assert not await exists(server, "s")

    by_hand(tmp_path, test)


def test_what_has_expired_is_removed_though_nobody_asks(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        for number in range(20):
            await server.done("PUT", f"s{number}", b"x", TEXT, stream_ttl=str(number + 1))
        await server.done("PUT", "stays", b"x", TEXT)
        server.clock.advance(10_000)
        server.streams.catalog.sweep()
        left = [name for name in server.engine.names("", "", 100) if not name.startswith("_")]
        assert sorted(left) == sorted(["stays", *(f"s{number}" for number in range(10, 20))])
        await server.later(11)
        left = [name for name in server.engine.names("", "", 100) if not name.startswith("_")]
        assert left == ["stays"]

    by_hand(tmp_path, test)


def test_a_restart_neither_ends_nor_saves_a_stream(tmp_path: Path) -> None:
    clock = ManualClock(NOW)

    async def first(server: HandServer) -> None:
        await server.done("PUT", "used", b"x", TEXT, stream_ttl="60")
        await server.done("PUT", "unused", b"x", TEXT, stream_ttl="60")
        await server.done("PUT", "instant", b"x", TEXT, stream_expires_at=iso(NOW + 100_000))
        clock.advance(50_000)
        await server.done("GET", "used")

    async def second(server: HandServer) -> None:
        clock.advance(40_000)
        # It was used 40 seconds ago.
        assert await exists(server, "used")
        assert not await exists(server, "unused")
        assert await exists(server, "instant")

    async def third(server: HandServer) -> None:
        # What was used last may be known with a delay, but never of more than a quarter.
        clock.advance(35_000)
        assert not await exists(server, "used")
        assert not await exists(server, "instant")
        assert (await server.done("PUT", "used", b"", JSON)).status == 201

    async def fourth(server: HandServer) -> None:
        clock.advance(10_000_000)
        assert await exists(server, "used")
        assert not await exists(server, "unused")

    by_hand(tmp_path, first, second, third, fourth, clock=clock)


def test_reads_seldom_write_anything(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT, stream_ttl="3600")
        written = server.engine.journal.written
        for _ in range(1000):
            server.clock.advance(50)
            server.ask("GET", "s")
        # Fifty seconds of reading, and one note of it.
        assert 0 < server.engine.journal.written - written < 200

    by_hand(tmp_path, test)


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_fork_has_its_sources_window_as_its_own(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT, stream_ttl="60")
        fork = await server.done("PUT", "f", content_type="", stream_forked_from="/v1/stream/s")
        assert fork.headers["stream-ttl"] == "60"
        longer = {"stream_forked_from": "/v1/stream/s", "stream_ttl": "600"}
        assert (await server.done("PUT", "g", content_type="", **longer)).headers["stream-ttl"] == "600"
        server.clock.advance(50_000)
        await server.done("GET", "f")
        server.clock.advance(10_000)
        # The source is gone, and kept for its forks.
        assert (await server.done("GET", "s")).status in (404, 410)
        assert server.ask("GET", "f").body == b"x"
        assert server.ask("GET", "g").body == b"x"
        server.clock.advance(60_000)
        assert not await exists(server, "f")
        assert server.ask("GET", "g").body == b"x"
        assert (await server.done("HEAD", "s")).status == 410
        server.clock.advance(600_000)
        assert not await exists(server, "g")
        assert (await server.done("HEAD", "s")).status == 404
        assert len([name for name in server.engine.names("", "", 10) if not name.startswith("_")]) == 0

    by_hand(tmp_path, test)


def test_a_hidden_source_goes_when_its_last_fork_expires(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT)
        short = {"stream_forked_from": "/v1/stream/s", "stream_ttl": "5"}
        await server.done("PUT", "f", content_type="", **short)
        assert (await server.done("DELETE", "s")).status == 204
        assert (await server.done("HEAD", "s")).status == 410
        assert (await server.done("PUT", "s", content_type=TEXT)).status == 409
        server.clock.advance(5_000)
        assert (await server.done("HEAD", "s")).status == 404
        assert (await server.done("PUT", "s", content_type=TEXT)).status == 201

    by_hand(tmp_path, test)


def test_what_was_kept_for_forks_that_are_gone_goes_at_the_start(tmp_path: Path) -> None:
    clock = ManualClock(NOW)

    async def first(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT)
        await server.done("PUT", "f", content_type="", stream_forked_from="/v1/stream/s", stream_ttl="5")
        await server.done("PUT", "g", content_type="", stream_forked_from="/v1/stream/f", stream_ttl="5")
        await server.done("DELETE", "s")

    async def second(server: HandServer) -> None:
        assert (await server.done("HEAD", "s")).status == 410
        clock.advance(10_000)

    async def third(server: HandServer) -> None:
        await server.later(1.1)
        assert [name for name in server.engine.names("", "", 10) if not name.startswith("_")] == []
        assert (await server.done("HEAD", "s")).status == 404

    by_hand(tmp_path, first, second, third, clock=clock)


def test_a_stream_made_anew_has_no_old_expiry(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT, stream_ttl="5")
        await server.done("DELETE", "s")
        await server.done("PUT", "s", b"y", TEXT)
        await server.later(10)
        assert server.ask("GET", "s").body == b"y"
        await server.done("DELETE", "s")
        await server.done("PUT", "s", b"z", TEXT, stream_ttl="60")
        await server.later(10)
        assert await exists(server, "s")

    by_hand(tmp_path, test)


def test_what_cannot_be_removed_is_not_there_all_the_same(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT, stream_ttl="5")
        journal = server.engine.journal
        usual = journal.write, journal.write_all

        def full(*_: object) -> None:
            raise DiskFull("journal", 200)

        journal.write = journal.write_all = full  # type: ignore[assignment,method-assign]
        await server.later(6)
        for method in ("HEAD", "GET", "POST", "DELETE"):
            assert (await server.done(method, "s", b"x" if method == "POST" else b"", TEXT)).status == 404
        refused = await server.done("PUT", "s", b"y", TEXT)
        assert (refused.status, refused.code) in ((503, "unavailable"), (507, "disk_full"))
        assert "retry-after" in refused.headers
        journal.write, journal.write_all = usual  # type: ignore[method-assign]
        # It is tried again, whether somebody asks for it or not.
        await server.later(2)
        assert [name for name in server.engine.names("", "", 10) if not name.startswith("_")] == []
        assert (await server.done("PUT", "s", b"y", TEXT)).status == 201

    by_hand(tmp_path, test)
