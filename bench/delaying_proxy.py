"""A proxy in front of an object store that delays and counts requests: ``python -m bench.delaying_proxy PORT STORE``,
with the ports of both.

It runs in a process of its own. A line on the standard input with a number sets the delay in milliseconds; any other
line asks for the number of requests of each method so far. Both are answered with a line of JSON. The process ends with
its input.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from bench.topics_server import HOST

PIECE_BYTES = 1 << 16
#: The longest head of a request.
HEAD_BYTES = 1 << 20


class DelayingProxy:
    """The proxy as its user sees it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.port = port

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def delay(self, ms: float) -> None:
        """From now on, every request waits this long before it reaches the store."""
        self._ask(str(ms))

    def counts(self) -> Counter[str]:
        """The requests so far, by method."""
        return Counter(self._ask("counts"))

    def _ask(self, line: str) -> dict[str, int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        found: dict[str, int] = msgspec.json.decode(self._process.stdout.readline())
        return found


@contextmanager
def delaying_proxy(port: int, upstream: int) -> Iterator[DelayingProxy]:
    command = [sys.executable, "-m", "bench.delaying_proxy", str(port), str(upstream)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            proxy = DelayingProxy(process, port)
            proxy.counts()
            yield proxy
        finally:
            process.kill()


class _Proxy:
    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._delay = 0.0
        self._counts: Counter[str] = Counter()

    def command(self, line: str) -> dict[str, int]:
        with suppress(ValueError):
            self._delay = float(line) / 1000
        return self._counts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Every connection has one of its own to the store. Answers pass as they come."""
        try:
            store_reader, store_writer = await asyncio.open_connection(HOST, self._upstream, limit=HEAD_BYTES)
        except OSError:
            writer.close()
            return
        answers = asyncio.ensure_future(_pass(store_reader, writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                self._counts[head.split(b" ", 1)[0].decode("ascii")] += 1
                await asyncio.sleep(self._delay)
                store_writer.write(head + body)
                await store_writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            store_writer.close()
            answers.cancel()
            writer.close()


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    return int(lower[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _main(port: int, upstream: int) -> None:
    proxy = _Proxy(upstream)
    await asyncio.start_server(proxy.serve, HOST, port, limit=HEAD_BYTES)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(msgspec.json.encode(proxy.command(line)).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
