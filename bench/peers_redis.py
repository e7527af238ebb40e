"""Redis Streams as one of the sides, in Redis's own protocol: one server for each durability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from bench.measure import Sample
from bench.peers import free_port
from bench.peers_daemon import daemon, version
from bench.peers_line import Line, Request
from bench.peers_sides import CLIENTS, EVERYTHING, Durability, Log, Peer, Side, catch_up_in_pages, new_log
from bench.topics_peers import Redis, missing

NAME = "Redis Streams"
GROUP = b"group"
#: No snapshots; all other settings are defaults.
SETTINGS: Mapping[Durability, tuple[str, ...]] = {
    "memory": ("--appendonly", "no"),
    "disk": ("--appendonly", "yes", "--appendfsync", "everysec"),
    "fsync": ("--appendonly", "yes", "--appendfsync", "always"),
}
HOW: Mapping[Durability, str] = {
    "memory": "no append-only file",
    "disk": "appendfsync everysec",
    "fsync": "appendfsync always",
}
#: Lines of the answer to XRANGE: one, and for each entry with one field those of two arrays and three strings.
ENTRY_LINES = 8
#: The requests of a trial: redis-benchmark takes a number of requests, not a duration.
TRIAL = 2000
#: More than the length of an error.
ERROR_BYTES = 500


def command(*words: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))


def check(answer: bytes) -> None:
    """No record contains a line break, so a line that starts with a minus is an error."""
    _, found, error = (b"\r\n" + answer).partition(b"\r\n-")
    if found:
        raise RuntimeError(f"redis: {error.splitlines()[0].decode()}")


class RedisLine(Line):
    def __init__(self, port: int) -> None:
        super().__init__(port, check)

    def _has_failed(self) -> bool:
        # An error is one line, and a success can be several.
        return self._data.startswith(b"-") or b"\r\n-" in self._data[-ERROR_BYTES:]


def lines(number: int, content: bytes, records: int = 1) -> Request:
    """A request whose answer has this number of lines."""
    return Request(content, bool, records, b"\r\n", number)


def _page_is_complete(data: bytearray) -> bool:
    first, found, _ = data.partition(b"\r\n")
    if not found or first.startswith(b"-"):
        return bool(found)
    return data.count(b"\r\n") >= 1 + ENTRY_LINES * int(first[1:])


class RedisStreams:
    name = NAME
    face = "redis"
    does = EVERYTHING

    def __init__(self, servers: Mapping[Durability, Redis], version: str) -> None:
        self.classes = {durability: f"{version}, {HOW[durability]}" for durability in servers}
        self._servers = servers
        self._filled: dict[Log, Iterator[int]] = {}

    def pid(self, durability: Durability) -> int:
        return self._servers[durability].pid

    def port(self, log: Log) -> int:
        return self._servers[log.durability].port

    def create(self, durability: Durability, *, queue: bool = False) -> Log:
        log = new_log(durability)
        if queue:
            with self.connect(log) as line:
                line.ask(lines(1, command(b"XGROUP", b"CREATE", log.name.encode(), GROUP, b"0", b"MKSTREAM")))
        return log

    def drop(self, log: Log) -> None:
        self._filled.pop(log, None)
        with self.connect(log) as line:
            line.ask(lines(1, command(b"UNLINK", log.name.encode())))

    def connect(self, log: Log) -> Line:
        return RedisLine(self.port(log))

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        """Pipelined: one XADD for each record, all sent at once."""
        name = log.name.encode()
        content = b"".join([command(b"XADD", name, b"*", b"data", record) for record in records])
        return lines(2 * len(records), content, len(records))

    def fill(self, log: Log, records: Sequence[bytes]) -> Request:
        """Appends with ascending ids, so that a page can be requested by its position."""
        name, ids = log.name.encode(), self._filled.setdefault(log, count(1))
        made = [command(b"XADD", name, b"%d-0" % next(ids), b"data", record) for record in records]
        return lines(2 * len(records), b"".join(made), len(records))

    def announce(self, log: Log, record: bytes) -> Request:
        return self.append(log, [record])

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        words = ("XADD", log.name, "*", "data", record.decode())
        return self._servers[log.durability].run_for(words, CLIENTS, seconds, first=TRIAL).sample()

    def page(self, log: Log, after: int, limit: int) -> Request:
        words = b"XRANGE", log.name.encode(), b"(%d-0" % after, b"+", b"COUNT", b"%d" % limit
        return Request(command(*words), _page_is_complete, limit)

    def catch_up(self, log: Log, records: int) -> Sample:
        return catch_up_in_pages(self, log, records, b"$4\r\ndata\r\n")


@contextmanager
def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    with ExitStack() as stack:
        yield RedisStreams(
            {
                durability: stack.enter_context(server(directory / durability, SETTINGS[durability]))
                for durability in durabilities
            },
            version("redis-server"),
        )


@contextmanager
def server(directory: Path, settings: Sequence[str]) -> Iterator[Redis]:
    """Whether the server has loaded its data."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
    with daemon([*words, *settings, "--daemonize", "no"], partial(_is_ready, port)) as pid:
        yield Redis(port, pid)


def _is_ready(port: int) -> bool:
    with RedisLine(port) as line:
        return line.ask(lines(1, command(b"PING"))) == b"+PONG\r\n"


def lacking() -> str:
    programs = missing("redis-server", "redis-benchmark")
    return f"{', '.join(programs)} is not installed (Debian: apt-get install redis)" if programs else ""


PEER = Peer(NAME, lacking, serving)
