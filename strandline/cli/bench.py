"""``strandline bench``: how fast a server appends, reads and delivers records of a log."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from msgspec import Raw
from rich.filesize import decimal

from strandline.cli.connection import connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.options import ApiKey, AsJson, Url
from strandline.cli.output import print_json, print_line, print_table, say
from strandline.cli.server_choice import DEFAULT_URL
from strandline.client.errors import NotFound, StrandlineError
from strandline.client.topic_types import Arrived

if TYPE_CHECKING:
    from strandline.client import Client, Topic

#: Writes of one record, whose times are measured, and records that are followed until they arrive.
SINGLE_WRITES, DELIVERED = 500, 200
#: Bounds of what one command may store.
MAX_RECORDS, MAX_BYTES = 100_000_000, 100 << 30
#: Servers refuse much larger requests by default.
MAX_REQUEST_BYTES = 8 << 20


class Measurement(msgspec.Struct):
    """``rate`` is in records per second; the times are in milliseconds per request, or per record that is delivered."""

    what: str
    records: int
    seconds: float
    rate: float
    bytes_per_second: float
    p50_ms: float
    p99_ms: float


def bench_command(
    records: Annotated[
        int,
        typer.Option("--records", metavar="N", min=1, max=MAX_RECORDS, help="Number of records to append in batches."),
    ] = 100_000,
    size: Annotated[int, typer.Option("--size", metavar="BYTES", min=2, max=1 << 20, help="Size of a record.")] = 200,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, max=10_000, help="Records per request.")] = 500,
    connections: Annotated[
        int, typer.Option("--connections", "-c", metavar="N", min=1, max=256, help="Number of concurrent writers.")
    ] = 4,
    durability: Annotated[
        Literal["ephemeral", "memory", "disk", "fsync", "replicated"],
        typer.Option("--durability", help="Durability of the log."),
    ] = "disk",
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="LOG", help="Name of the log, which must not exist. Default: a random name."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the log instead of deleting it at the end.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Measure how fast a server appends, reads and delivers records.

    It creates a log, appends records in batches and one by one, reads them, watches them arrive, and deletes the log.
    The key needs all scopes. This process takes processor time as well: on the machine of the server, both compete.

    Example:
      strandline bench
      strandline bench --records 1000000 --connections 8 --durability fsync
    """
    if records * size > MAX_BYTES:
        raise typer.BadParameter(f"{records:,} records of {size:,} bytes are more than {decimal(MAX_BYTES)}")
    if batch * size > MAX_REQUEST_BYTES:
        most = MAX_REQUEST_BYTES // size
        raise typer.BadParameter(f"{batch:,} records of {size:,} bytes are too many for a request; use --batch {most}")
    name = log or f"bench-{secrets.token_hex(4)}"
    with connect(url, api_key) as client, _new_log(client, name, durability, keep):
        bench = Bench(lambda: connect(url, api_key), client, name, size)
        found = [
            bench.append(records, batch, connections),
            bench.append_one_by_one(SINGLE_WRITES),
            bench.read(),
            bench.deliver(DELIVERED),
        ]
    if as_json:
        print_json({"url": url, "durability": durability, "size": size, "batch": batch, "connections": connections,
                    "measurements": found})  # fmt: skip
        return
    columns = ("measurement", "records", "records/s", "bytes/s", "p50", "p99")
    rows = [
        (one.what, f"{one.records:,}", f"{one.rate:,.0f}", decimal(round(one.bytes_per_second)),
         f"{one.p50_ms:.2f} ms", f"{one.p99_ms:.2f} ms")
        for one in found
    ]  # fmt: skip
    print_table(columns, rows, right=columns[1:])
    print_line(
        f"records of {size:,} bytes, {batch:,} per request, {connections:,} connections, durability {durability}"
    )
    if keep:
        print_line(f"kept log {name}")


@contextmanager
def _new_log(client: Client, name: str, durability: Any, keep: bool) -> Iterator[None]:
    """A log that is deleted at the end, also after an error or Ctrl-C. Raises CommandFailed if it exists."""
    topic = client.topic(name)
    try:
        topic.state(touch=False)
    except NotFound:
        topic.configure(durability=durability)
    else:
        raise CommandFailed(f"log {name!r} already exists; give the name of a new log", Exit.CONFLICT)
    try:
        yield
    finally:
        if not keep:
            try:
                topic.delete()
            except StrandlineError as error:
                say(f"cannot delete log {name!r}: {error}; delete it with `strandline log delete {name} --all`")


class Bench:
    """The measurements, on one log."""

    def __init__(self, open_client: Callable[[], Client], client: Client, name: str, size: int) -> None:
        self._open = open_client
        self._client = client
        self._name = name
        # Letters do not compress to nothing, and are as long in JSON as in memory.
        self._record = Raw(b'"' + secrets.token_hex(size // 2 + 1)[: max(size - 2, 0)].encode() + b'"')
        self._size = len(bytes(self._record))

    def append(self, records: int, batch: int, connections: int) -> Measurement:
        """Batches, by several writers with a connection each."""
        shares = [records // connections + (at < records % connections) for at in range(connections)]
        with ThreadPoolExecutor(connections) as pool:
            started = time.perf_counter()
            times = [each for found in pool.map(lambda share: self._append(share, batch), shares) for each in found]
            seconds = time.perf_counter() - started
        return self._measured("append in batches", records, seconds, times)

    def _append(self, records: int, batch: int) -> list[float]:
        with self._open() as client:
            topic = client.topic(self._name)
            return [
                _seconds(topic.write_many, [self._record] * min(batch, records - start))
                for start in range(0, records, batch)
            ]

    def append_one_by_one(self, records: int) -> Measurement:
        topic = self._client.topic(self._name)
        started = time.perf_counter()
        times = [_seconds(topic.write, self._record) for _ in range(records)]
        return self._measured("append one by one", records, time.perf_counter() - started, times)

    def read(self) -> Measurement:
        """All records, page by page."""
        topic: Topic[Raw] = self._client.topic(self._name, Raw)
        records, after, times = 0, 0, list[float]()
        started = time.perf_counter()
        while True:
            before = time.perf_counter()
            page = topic.diff(after, limit=1000)
            times.append(time.perf_counter() - before)
            records += len(page.records)
            after = page.next_from_seq
            if page.caught_up:
                return self._measured("read", records, time.perf_counter() - started, times)

    def deliver(self, records: int) -> Measurement:
        """From the append of a record until a watch has it."""
        times: list[float] = []
        with self._client.watch({self._name: None}, Raw) as watch, self._open() as client:
            topic = client.topic(self._name)
            events = (event for event in watch if isinstance(event, Arrived))
            # The watch has begun when it has delivered a record. Repeated until then.
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(next, events)
                while not first.done():
                    topic.write(self._record)
                    with suppress(TimeoutError):
                        first.result(0.05)
            head = topic.state(touch=False).head_seq
            reached = first.result().to_seq
            while reached < head:
                reached = next(events).to_seq
            for _ in range(records):
                before = time.perf_counter()
                topic.write(self._record)
                list(islice(events, 1))
                times.append(time.perf_counter() - before)
        return self._measured("deliver", records, sum(times), times)

    def _measured(self, what: str, records: int, seconds: float, times: list[float]) -> Measurement:
        ordered = sorted(times)
        rate = records / max(seconds, 1e-9)
        p50, p99 = (ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000 for share in (0.5, 0.99))
        return Measurement(what, records, seconds, rate, rate * self._size, p50, p99)


def _seconds(call: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - started
