"""PostgreSQL as one of the sides: a log is a table with a counting key, in PostgreSQL's own protocol.

A private cluster with the defaults of ``initdb``, over TCP like the others. The durability is the session's
``synchronous_commit``; with the durability ``memory`` the table is unlogged. Statements that are used repeatedly are
prepared once per connection, and batches are copied in.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.measure import Sample
from bench.peers import free_port
from bench.peers_daemon import daemon, program, unprivileged_user, version
from bench.peers_line import Line, Request
from bench.peers_sides import CLIENTS, EVERYTHING, Durability, Log, Peer, Side, catch_up_in_pages, new_log
from bench.topics_peers import GRACE_SECONDS

NAME = "PostgreSQL"
#: The administrator of the private cluster, and its database.
USER, DATABASE = "bench", "postgres"
VERSION = 196_608
#: Each reader and each worker has a connection.
CONNECTIONS = 300
#: Transactions of each connection in the first turn.
TRIAL = 20
#: The directory of the programs of the newest version on Debian.
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)

#: The ends of an answer: ready outside of a transaction, within one, or within a failed one.
ENDINGS = tuple(b"Z\0\0\0\5" + state for state in (b"I", b"T", b"E"))
#: The fields of an error.
ERRORS = (b"SERROR\0", b"SFATAL\0", b"SPANIC\0")

HOW: Mapping[Durability, str] = {
    "memory": "unlogged table, synchronous_commit off",
    "disk": "synchronous_commit off",
    "fsync": "synchronous_commit on",
}
#: By durability, the session's ``synchronous_commit``.
COMMIT: Mapping[Durability, str] = {"memory": "off", "disk": "off", "fsync": "on"}


def message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def simple(sql: str, records: int = 1) -> Request:
    return Request(message(b"Q", sql.encode() + b"\0"), _is_ready_again, records)


def execute(statement: bytes, *arguments: bytes, records: int = 1) -> Request:
    """Run a prepared statement of the connection."""
    values = b"".join(struct.pack("!i", len(argument)) + argument for argument in arguments)
    bound = b"\0" + statement + b"\0" + struct.pack("!hh", 0, len(arguments)) + values + struct.pack("!h", 0)
    content = message(b"B", bound) + message(b"E", b"\0" + struct.pack("!i", 0)) + message(b"S", b"")
    return Request(content, _is_ready_again, records)


def copied(table: str, records: Sequence[bytes]) -> Request:
    """All these rows in one statement, which is sent together with the rows."""
    rows = b"".join([record.replace(b"\\", b"\\\\") + b"\n" for record in records])
    asked = message(b"Q", f"copy {table}(data) from stdin\0".encode())
    return Request(asked + message(b"d", rows) + message(b"c", b""), _is_ready_again, len(records))


def _is_ready_again(data: bytearray) -> bool:
    return data.endswith(ENDINGS)


def check(answer: bytes) -> None:
    if any(field in answer for field in ERRORS):
        text = re.search(rb"\0M([^\0]*)", answer)
        raise RuntimeError(f"postgresql: {(text[1] if text else answer[:300]).decode(errors='replace')}")


def connected(port: int, durability: Durability, *prepared: str) -> Line:
    """A session with this durability and these prepared statements."""
    line = Line(port, check)
    try:
        options = f"-c synchronous_commit={COMMIT[durability]}"
        settings = ("user", USER, "database", DATABASE, "options", options)
        words = b"".join(word.encode() + b"\0" for word in settings) + b"\0"
        line.ask(Request(struct.pack("!ii", len(words) + 8, VERSION) + words, _is_ready_again))
        for statement in prepared:
            line.ask(simple(f"prepare {statement}"))
    except BaseException:
        line.__exit__()
        raise
    return line


def page_statement(table: str) -> str:
    return f"page(bigint, bigint) as select seq, data from {table} where seq > $1 order by seq limit $2"


class PostgreSQL:
    name = NAME
    face = "postgres"
    does = EVERYTHING

    def __init__(self, directory: Path, port: int, pid: int, version: str) -> None:
        self.classes = {durability: f"{version}, {how}" for durability, how in HOW.items()}
        self._directory = directory
        self._port = port
        self._pid = pid
        self._rates: dict[Durability, float] = {}

    def pid(self, durability: Durability) -> int:
        return self._pid

    def port(self, log: Log) -> int:
        return self._port

    def create(self, durability: Durability, *, queue: bool = False) -> Log:
        log = new_log(durability)
        kind = "unlogged table" if durability == "memory" else "table"
        columns = "seq bigint generated always as identity primary key, data text not null"
        with connected(self._port, durability) as line:
            line.ask(simple(f"create {kind} {log.name} ({columns})"))
        return log

    def drop(self, log: Log) -> None:
        with connected(self._port, log.durability) as line:
            line.ask(simple(f"drop table {log.name}"))

    def connect(self, log: Log) -> Line:
        return connected(
            self._port,
            log.durability,
            f"append(text) as insert into {log.name}(data) values ($1) returning seq",
            page_statement(log.name),
            f"announce(text) as with added as (insert into {log.name}(data) values ($1) returning seq)"
            f" select pg_notify('{log.name}', seq::text) from added",
        )

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        return execute(b"append", records[0]) if len(records) == 1 else copied(log.name, records)

    fill = append

    def announce(self, log: Log, record: bytes) -> Request:
        return execute(b"announce", record)

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        """Appends by pgbench. With a duration, pgbench would count the time to connect, so it gets a number of
        transactions, which is based on the previous turn."""
        script = self._directory / "append.sql"
        text = record.decode().replace("'", "''")
        script.write_text(f"insert into {log.name}(data) values ('{text}') returning seq;\n")
        if log.durability not in self._rates:
            self._rates[log.durability] = self._pgbench(script, TRIAL, log.durability)
        each = max(TRIAL, int(self._rates[log.durability] * seconds / CLIENTS))
        self._rates[log.durability] = rate = self._pgbench(script, each, log.durability)
        return Sample(rate, 1.0)

    def _pgbench(self, script: Path, each: int, durability: Durability) -> float:
        """Transactions per second, with this number of transactions on each connection."""
        words = ["-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-t", str(each), "-f", str(script)]
        words += ["-h", "127.0.0.1", "-p", str(self._port), "-U", USER, DATABASE]
        done = subprocess.run(
            [str(program("pgbench", *PROGRAMS)), *words],
            env={**os.environ, "PGOPTIONS": f"-c synchronous_commit={COMMIT[durability]}"},
            capture_output=True,
            text=True,
            timeout=GRACE_SECONDS,
        )
        found = re.search(r"tps = ([0-9.]+)", done.stdout)
        if done.returncode or found is None:
            raise RuntimeError(f"pgbench: {done.stderr.strip()}")
        return float(found[1])

    def page(self, log: Log, after: int, limit: int) -> Request:
        return execute(b"page", b"%d" % after, b"%d" % limit, records=limit)

    def catch_up(self, log: Log, records: int) -> Sample:
        return catch_up_in_pages(self, log, records, ROW)


#: The beginning of a row of a page: a message of two columns.
ROW = b"\0\2\0\0\0"


# --- the server ------------------------------------------------------------------------------------------------------


@contextmanager
def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    """A cluster in this directory, created if it does not exist, for all durabilities. It never runs as root; its user
    must be able to access the directory."""
    user, data, port = unprivileged_user(), directory / "cluster", free_port()
    directory.mkdir(parents=True, exist_ok=True)
    if user is not None:
        for place in (directory, directory.parent, directory.parent.parent):
            place.chmod(place.stat().st_mode | 0o011)
    if not data.exists():
        data.mkdir(0o700)
        if user is not None:
            shutil.chown(data, user, user)
        _make_cluster(data, user)
    settings = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": CONNECTIONS,
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [str(program("postgres", *PROGRAMS)), "-D", str(data), *words]
    with daemon(command, partial(_is_ready, port), user=user, stop=signal.SIGINT) as pid:
        yield PostgreSQL(directory, port, pid, version(command[0]))


def _make_cluster(data: Path, user: str | None) -> None:
    command = [
        str(program("initdb", *PROGRAMS)),
        "-D",
        str(data),
        "-U",
        USER,
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale",
        "C",
    ]
    done = subprocess.run(command, user=user, cwd="/", capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"initdb: {done.stderr.strip()}")


def _is_ready(port: int) -> bool:
    with connected(port, "disk"):
        return True


def lacking() -> str:
    programs = [name for name in ("initdb", "postgres", "pgbench") if program(name, *PROGRAMS) is None]
    return f"{', '.join(programs)} is not installed (Debian: apt-get install postgresql)" if programs else ""


PEER = Peer(NAME, lacking, serving)
