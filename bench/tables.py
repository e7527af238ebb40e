"""Tables: appends and pages, in Python and over HTTP, next to the engine's bare append and to SQLite.

All sides write to the disk before they acknowledge. SQLite runs in this process, without a server in between; its table
has the same columns and the same unique keys.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import Effort, Row, Sample, Work, in_rounds, repeated
from bench.topics_peers import Wrk, missing
from bench.topics_server import Connection, Server, request_bytes, serving
from bench.workload import NEVER, directory
from strandline.engine import Batch, Config, Engine, Options
from strandline.tables import Table, Tables, make_log

GROUP = "tables"
BULK = 100
SIZES = (1_000, 1_000_000)
PAGE, TAIL = 50, 500
CONNECTIONS = 32
SECONDS = 1.0
#: The maximum number of appends in a turn.
TURN_APPENDS = 100_000
USER = "user-1"
ENGINE = "the engine's bare append"
WITHOUT_FEED = "the same without a feed"
SQLITE = "SQLite, WAL, synchronous=FULL"
SCHEMA = {
    "type": "object",
    "properties": {"optionIdx": {"type": "integer"}, "voter": {"type": "string"}, "comment": {"type": "string"}},
    "required": ["optionIdx", "voter"],
    "additionalProperties": False,
}
PAYLOAD = {"optionIdx": 3, "voter": "somebody", "comment": "a remark that is as long as most remarks are, or nearly so"}
PAYLOAD_JSON = (
    b'{"optionIdx":3,"voter":"somebody","comment":"a remark that is as long as most remarks are, or nearly so"}'
)
DECLARATIONS = f"""from strandline.tables import make_log

vote = make_log("vote", parent="poll", schema={SCHEMA!r}, pub=True)
"""

_numbers = count(1)


def run(root: Path, effort: Effort) -> Iterator[Row]:
    yield from _appends(root, effort)
    for size in SIZES:
        yield from _pages(root, effort, effort.scaled(size, BULK) if size > SIZES[0] else size)


# --- appending -----------------------------------------------------------------------------------------------------


class Append(NamedTuple):
    """One kind of append, and its calls on all sides."""

    name: str
    rows: int
    keyed: bool


APPENDS = (
    Append("single appends", 1, False),
    Append("single appends with an idempotency key", 1, True),
    Append(f"bulk appends of {BULK}", BULK, False),
)


def _appends(root: Path, effort: Effort) -> Iterator[Row]:
    with directory(root, "tables") as base, Engine.open(base / "ours", Options(journal_bytes=NEVER)) as engine:
        votes = _tables(engine)["vote"]
        with SqliteTable(base / "peer.db") as sqlite:
            for append in APPENDS:
                ours = _ours(votes, append, effort)
                name = f"{append.name}, Python, 1 thread"
                bare = in_rounds(ours, _bare(engine, append, effort), effort.rounds)
                yield bare.beside_peer(GROUP, name, "records/s", ENGINE)
                beside = in_rounds(ours, _in_sqlite(sqlite, append, effort), effort.rounds)
                yield beside.beside_peer(GROUP, name, "records/s", SQLITE)
        fed = Tables(engine, [make_log("fed", parent="poll", schema=SCHEMA, feed=True)])["fed"]
        for append in APPENDS:
            rounds = in_rounds(_ours(fed, append, effort), _ours(votes, append, effort), effort.rounds)
            yield rounds.beside_peer(GROUP, f"{append.name} with a feed, Python, 1 thread", "records/s", WITHOUT_FEED)
    yield from _http_appends(root, effort)


def _ours(votes: Table, append: Append, effort: Effort) -> Work:
    def one() -> None:
        key = f"key-{next(_numbers)}" if append.keyed else None
        votes.append(parent, PAYLOAD, user=USER, idempotency_key=key).wait()

    def many() -> None:
        votes.append_bulk(parent, [PAYLOAD] * append.rows, user=USER).wait()

    parent = f"poll-{next(_numbers)}"
    action = one if append.rows == 1 else many
    return lambda: repeated(action, append.rows, effort.turn, TURN_APPENDS)


def _bare(engine: Engine, append: Append, effort: Effort) -> Work:
    log = engine.create(f"bare-{next(_numbers)}", Config(durability="fsync")).wait()
    batch = Batch([PAYLOAD_JSON] * append.rows)
    return lambda: repeated(lambda: log.append(batch).wait(), append.rows, effort.turn, TURN_APPENDS)


def _in_sqlite(sqlite: SqliteTable, append: Append, effort: Effort) -> Work:
    parent = f"poll-{next(_numbers)}"

    def action() -> None:
        key = f"key-{next(_numbers)}" if append.keyed else None
        sqlite.append(parent, append.rows, key)

    return lambda: repeated(action, append.rows, effort.turn, TURN_APPENDS)


def _http_appends(root: Path, effort: Effort) -> Iterator[Row]:
    """Appends through the server, whose flushes are shared by all waiting requests. SQLite has one writer at a time."""
    if missing("wrk"):
        print("tables: without appends through the server, wrk is not installed", file=sys.stderr)
        return
    with directory(root, "tables") as base, _serving(base, base / "ours") as server:
        wrk = Wrk(base, server)
        with SqliteTable(base / "peer.db") as sqlite:
            for append in APPENDS:
                name = f"{append.name}, HTTP, {CONNECTIONS} connections"
                ours = _http_keyed(server, effort) if append.keyed else _http(wrk, append)
                rounds = in_rounds(ours, _in_sqlite(sqlite, append, effort), effort.rounds)
                yield rounds.beside_peer(GROUP, name, "records/s", SQLITE)


def _http(wrk: Wrk, append: Append) -> Work:
    def turn() -> Sample:
        parent = b"poll-%d" % next(_numbers)
        if append.rows == 1:
            body = b'{"parent":"%b","payload":%b}' % (parent, PAYLOAD_JSON)
            return wrk.run(body, ["/tables/vote/append"], CONNECTIONS, SECONDS).sample()
        items = b",".join([b'{"payload":%b}' % PAYLOAD_JSON] * append.rows)
        body = b'{"parent":"%b","items":[%b]}' % (parent, items)
        return wrk.run(body, ["/tables/vote/appendBulk"], CONNECTIONS, SECONDS).sample(append.rows)

    return turn


def _http_keyed(server: Server, effort: Effort) -> Work:
    """Requests from Python, because each is different, and with different requests wrk costs more than the server."""

    def requests(parent: bytes, lines: list[Connection]) -> None:
        for line in lines:
            body = b'{"parent":"%b","payload":%b,"idempotencyKey":"key-%d"}' % (parent, PAYLOAD_JSON, next(_numbers))
            line.send(request_bytes("POST", "/tables/vote/append", body))
        for line in lines:
            answer = line.receive()
            if answer.status != 200:
                raise RuntimeError(f"refused: {answer.status} {answer.body!r}")

    def turn() -> Sample:
        parent = b"poll-%d" % next(_numbers)
        lines = [server.connect() for _ in range(CONNECTIONS)]
        try:
            return repeated(lambda: requests(parent, lines), CONNECTIONS, effort.turn, TURN_APPENDS)
        finally:
            for line in lines:
                line.__exit__()

    return turn


# --- pages ---------------------------------------------------------------------------------------------------------


def _pages(root: Path, effort: Effort, size: int) -> Iterator[Row]:
    """The newest rows, and the rows after one in the middle, of a parent with this number of rows."""
    middle = size // 2
    with directory(root, "tables") as base, SqliteTable(base / "peer.db") as sqlite:
        for _ in range(0, size, BULK):
            sqlite.append("poll", BULK, None, durable=False)
        sqlite.flush()
        last = lambda: sqlite.last("poll", PAGE)  # noqa: E731
        tail = lambda: sqlite.after("poll", middle, TAIL)  # noqa: E731
        with Engine.open(base / "ours") as engine:
            votes = _tables(engine)["vote"]
            for _ in range(0, size, BULK):
                filled = votes.append_bulk("poll", [PAYLOAD] * BULK, user=USER)
            filled.wait()
            python = {
                PAGE: lambda: votes.list("poll", user=None, limit=PAGE),
                TAIL: lambda: votes.list_after("poll", middle, user=None, limit=TAIL),
            }
            yield _page_row("list", "Python", size, PAGE, python[PAGE], last, effort)
            yield _page_row("listAfter", "Python", size, TAIL, python[TAIL], tail, effort)
        with _serving(base, base / "ours") as server, server.connect() as line:
            newest = request_bytes("GET", f"/tables/vote/pub/list?parent=poll&limit={PAGE}")
            further = request_bytes("GET", f"/tables/vote/pub/listAfter?parent=poll&seq={middle}&limit={TAIL}")
            yield _page_row("list", "HTTP", size, PAGE, _asking(line, newest, PAGE), last, effort)
            yield _page_row("listAfter", "HTTP", size, TAIL, _asking(line, further, TAIL), tail, effort)


def _asking(line: Connection, request: bytes, rows: int) -> Callable[[], object]:
    def ask() -> None:
        line.send(request)
        answer = line.receive()
        if answer.status != 200 or answer.body.count(b'"createdAt":') != rows:
            raise RuntimeError(f"not the expected page: {answer.status} {answer.body[:300]!r}")

    return ask


def _page_row(
    what: str, how: str, size: int, rows: int, ours: Callable[[], Any], theirs: Callable[[], Any], effort: Effort
) -> Row:
    rounds = in_rounds(
        lambda: repeated(ours, 1, effort.turn, TURN_APPENDS),
        lambda: repeated(theirs, 1, effort.turn, TURN_APPENDS),
        effort.rounds,
    )
    return rounds.beside_peer(GROUP, f"{what}, {rows} of {size:,} rows, {how}", "calls/s", "SQLite, in process")


# --- both sides ----------------------------------------------------------------------------------------------------


def _tables(engine: Engine) -> Tables:
    return Tables(engine, [make_log("vote", parent="poll", schema=SCHEMA, pub=True)])


def _serving(base: Path, data: Path) -> Any:
    declarations = base / "declarations.py"
    declarations.write_text(DECLARATIONS)
    return serving(data, declare=declarations)


class SqliteTable:
    """A table with the same columns: a number per parent, a unique key, an author, times, a payload."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE vote (id INTEGER PRIMARY KEY, parent TEXT NOT NULL, seq INTEGER NOT NULL, key TEXT, "
            "user TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, payload TEXT NOT NULL)"
        )
        self._db.execute("CREATE UNIQUE INDEX by_seq ON vote (parent, seq)")
        self._db.execute("CREATE UNIQUE INDEX by_key ON vote (parent, key) WHERE key IS NOT NULL")

    def append(self, parent: str, rows: int, key: str | None, *, durable: bool = True) -> None:
        """In one transaction: look up the key, take the next numbers, insert."""
        db = self._db
        if durable or not db.in_transaction:
            db.execute("BEGIN IMMEDIATE")
        if key is not None:
            db.execute("SELECT seq FROM vote WHERE parent = ? AND key = ?", (parent, key)).fetchone()
        (last,) = db.execute("SELECT max(seq) FROM vote WHERE parent = ?", (parent,)).fetchone()
        payload = PAYLOAD_JSON.decode()
        values = [(parent, (last or 0) + at, key, USER, 0, 0, payload) for at in range(1, rows + 1)]
        db.executemany(
            "INSERT INTO vote (parent, seq, key, user, created, updated, payload) VALUES (?, ?, ?, ?, ?, ?, ?)", values
        )
        if durable:
            db.execute("COMMIT")

    def flush(self) -> None:
        self._db.execute("COMMIT")

    def last(self, parent: str, limit: int) -> list[Any]:
        return self._db.execute(
            "SELECT * FROM vote WHERE parent = ? ORDER BY seq DESC LIMIT ?", (parent, limit)
        ).fetchall()

    def after(self, parent: str, seq: int, limit: int) -> list[Any]:
        return self._db.execute(
            "SELECT * FROM vote WHERE parent = ? AND seq > ? ORDER BY seq LIMIT ?", (parent, seq, limit)
        ).fetchall()

    def __enter__(self) -> SqliteTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
