"""Which operation of which protocol works on which kind of log: one declaration for the test and for the document.

Every cell is tried with a log of its own, which has the texts of ``SHOWN`` and not those of ``GONE``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from strandline.client import Conflict
from strandline.history.source import open_history
from strandline.lake import layout
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.chosen_logs import Chosen, UnknownLogs
from strandline.pipeline.run import run_round
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.targets import open_target
from support.arrow_client import table
from support.command_line import Cli
from support.every_protocol import Request
from support.local_tasks import work_here
from support.server_process import ServerProcess

DECLARED = Path(__file__).with_name("declared_items.py")
SEARCH = {
    "schema": {"type": "object"},
    "search": {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "column": True, "bindings": [{"version": 1, "jsonPointer": "/at"}]},
            "text": {
                "kind": "text",
                "analyzer": "unicode_word_v1",
                "bindings": [{"version": 1, "jsonPointer": "/text"}],
            },
        },
        "rollups": {"all": {"intervals": ["1h"], "measures": {"records": {"kind": "count"}}}},
    },
}
#: A collection of elements, and one of regular documents.
COLLECTIONS = {
    "version": 1,
    "collections": [
        {
            "name": "open",
            "storagePath": "open/{id}",
            "readRoles": ["public"],
            "writeRoles": ["public"],
            "appendOnly": {"type": "by_timestamp", "requireAuthorSignature": False},
            "search": ["text"],
        },
        {"name": "page", "storagePath": "page/{id}", "readRoles": ["public"], "writeRoles": ["public"]},
    ],
}
PROFILE = {"apiVersion": "durable.streams/profile/v1", "profile": {"kind": "generic"}}
AT = "2026-11-02T09:00:00Z"

#: What a reader of a log finds, and what no reader of a table finds: the earlier content of an edited row, and a
#: removed row.
SHOWN = ("red lamp", "blue lamp")
GONE = ("bulb", "chair")
#: The same for the other logs of the table, by the beginning of their names. Changes have the earlier content of rows.
SIDE_TEXTS = {"item~changes/": (("old bulb",), ("chair",)), "item~feed/": (("append",), ("lamp", "bulb", "chair"))}

YES, NOT_LISTED = "yes", "not listed"
#: Tasks run in this process.
NO_SPARK: Any = None

_numbers = count(1)


class MatrixServer:
    """One server for all cells."""

    def __init__(self, place: Path) -> None:
        (place / "collections.json").write_text(json.dumps(COLLECTIONS))
        settings = {"config_file": str(place / "collections.json"), "declare": DECLARED}
        self._process = ServerProcess(place / "data", settings=settings)

    def start(self) -> MatrixServer:
        try:
            self.client = self._process.start().client()
        except BaseException:
            self.end()
            raise
        self.url = self._process.url
        self.cli = Cli(self.url)
        # Something has to be removed before there is a log of what was removed.
        self.send("POST", f"/v0/topics/{make_topic(self)}/delete", {"before_seq": 2})
        # A destination of dead letters.
        self.send("PUT", "/v0/topics/origin", {})
        return self

    def end(self) -> None:
        self._process.end()

    def ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> httpx.Response:
        return Request(method, path, body, content_type).send(self.client)

    def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> httpx.Response:
        """A request that must succeed."""
        response = self.ask(method, path, body, content_type)
        assert response.is_success, (method, path, response.text)
        return response

    def content(self, name: str) -> bytes:
        """The records of a log, with everything that belongs to them."""
        return self.client.http.get(f"/arrow/records/{quote(name)}").content


# --- kinds of logs --------------------------------------------------------------------------------------------------


def make_topic(server: MatrixServer) -> str:
    name = f"topic-{next(_numbers)}"
    server.send("POST", f"/v0/topics/{name}", {"records": [{"data": {"text": text, "at": AT}} for text in SHOWN]})
    return name


def make_queue(server: MatrixServer) -> str:
    name = f"queue-{next(_numbers)}"
    server.send("PUT", f"/v0/topics/{name}", {"type": "queue"})
    server.send("POST", f"/v0/topics/{name}", {"records": [{"data": {"text": text, "at": AT}} for text in SHOWN]})
    return name


def make_stream(server: MatrixServer) -> str:
    name = f"stream/{next(_numbers)}"
    server.send("PUT", f"/v1/stream/{name}", b"")
    server.send("POST", f"/v1/stream/{name}", [{"text": text, "at": AT} for text in SHOWN])
    return name


def make_searched_stream(server: MatrixServer) -> str:
    name = f"searched/{next(_numbers)}"
    server.send("PUT", f"/v1/stream/{name}", b"")
    server.send("POST", f"/v1/stream/{name}/_schema", SEARCH)
    server.send("POST", f"/v1/stream/{name}", [{"text": text, "at": AT} for text in SHOWN])
    return name


def make_text_stream(server: MatrixServer) -> str:
    name = f"text/{next(_numbers)}"
    server.send("PUT", f"/v1/stream/{name}", b"", "text/plain")
    server.send("POST", f"/v1/stream/{name}", "; ".join(SHOWN).encode(), "text/plain")
    return name


def make_table(server: MatrixServer) -> str:
    # A name that needs escapes in paths.
    parent = f"50% für #{next(_numbers)}?"
    for text in (SHOWN[0], "old bulb", "green chair", "broken chair"):
        server.send("POST", "/tables/item/append", {"parent": parent, "payload": {"text": text}})
    server.send("POST", "/tables/item/update", {"id": f"{parent}:2", "patch": {"text": SHOWN[1]}})
    server.send("POST", "/tables/item/update", {"id": f"{parent}:3", "patch": {"text": "white chair"}})
    server.send("POST", "/tables/item/rm", {"id": f"{parent}:3"})
    server.send("POST", "/tables/item/rm", {"id": f"{parent}:4", "hard": True})
    return f"item/{parent}"


def make_document(server: MatrixServer) -> str:
    name = f"open/{next(_numbers)}"
    for text in SHOWN:
        server.send("POST", f"/push/{name}", {"data": {"text": text}})
    return name


def make_regular_document(server: MatrixServer) -> str:
    name = f"page/{next(_numbers)}"
    server.send("POST", f"/push/{name}", {"data": {"text": "; ".join(SHOWN)}, "baseHash": None})
    return name


def internal_log(server: MatrixServer) -> str:
    return "__erasures__"


KINDS: dict[str, Callable[[MatrixServer], str]] = {
    "topic": make_topic,
    "queue": make_queue,
    "stream": make_stream,
    "stream with schema": make_searched_stream,
    "stream of text": make_text_stream,
    "table": make_table,
    "collection": make_document,
    "regular document": make_regular_document,
    "internal log": internal_log,
}


def make_changes(server: MatrixServer) -> str:
    return make_table(server).replace("item/", "item~changes/")


def make_feed(server: MatrixServer) -> str:
    make_table(server)
    return "item~feed/all"


#: The logs that a table has beside those of its rows.
SIDE_KINDS: dict[str, Callable[[MatrixServer], str]] = {
    "changes of a table": make_changes,
    "feed of a table": make_feed,
}


# --- operations -----------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """``cell`` is what the table in the document says: ``yes``, or the status and the code of the refusal."""

    cell: str
    message: str = ""


DONE = Outcome(YES)
Run = Callable[[MatrixServer, str], Outcome]


def outcome(response: httpx.Response) -> Outcome:
    """A refusal must have the shape of the protocol's errors."""
    if response.is_success:
        return DONE
    if not response.content:
        return Outcome(str(response.status_code))
    error = response.json()["error"]
    if isinstance(error, str):  # collections
        return Outcome(f"{response.status_code} {error}", response.text)
    return Outcome(f"{response.status_code} {error['code']}", error["message"])


def seen(text: str, name: str) -> Outcome:
    """The outcome for a reader who got what a reader of the log is to get."""
    if not name.startswith("__"):
        shown, gone = texts_of(name)
        assert all(each in text for each in shown), f"not read: {text}"
        assert not any(each in text for each in gone), f"removed content was read: {text}"
    return DONE


def texts_of(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a reader of the log finds, and what not."""
    return next((texts for start, texts in SIDE_TEXTS.items() if name.startswith(start)), (SHOWN, GONE))


def _path(path: str, name: str) -> str:
    return path.format(topic=quote(name, safe=""), path=quote(name), number=next(_numbers))


def read(method: str, path: str, body: Any = None) -> Run:
    """An operation that returns records. The path has the name of the log as ``{topic}``, without slashes, or as
    ``{path}``."""

    def run(server: MatrixServer, name: str) -> Outcome:
        response = server.ask(method, _path(path, name), body)
        return seen(response.text, name) if response.is_success else outcome(response)

    return run


def call(method: str, path: str, body: Any = None, content_type: str = "application/json") -> Run:
    """Any other operation. The body has the name of the log as ``{name}``, and numbers as ``{number}``."""

    def run(server: MatrixServer, name: str) -> Outcome:
        filled = body
        if isinstance(body, dict):
            text = json.dumps(body).replace("{name}", name).replace("{number}", str(next(_numbers)))
            filled = json.loads(text)
        return outcome(server.ask(method, _path(path, name), filled, content_type))

    return run


def _lines(server: MatrixServer, path: str, name: str) -> Outcome:
    """Read a live response until all records came."""
    text = ""
    with server.client.http.stream("GET", path) as response:
        if not response.is_success:
            response.read()
            return outcome(response)
        for line in response.iter_lines() if not name.startswith("__") else ():
            text += line
            if texts_of(name)[0][-1] in text:
                break
    return seen(text, name)


def listed(path: str) -> Run:
    """A list of logs. The path has the name of the log as the prefix of names."""

    def run(server: MatrixServer, name: str) -> Outcome:
        # Names are JSON strings in the answer, and hardly any other member has such a value.
        shown = server.send("GET", _path(path, name)).text
        return DONE if json.dumps(name, ensure_ascii=False) in shown else Outcome(NOT_LISTED)

    return run


def live(path: str) -> Run:
    return lambda server, name: _lines(server, _path(path, name), name)


def watch_topic(server: MatrixServer, name: str) -> Outcome:
    made = server.ask("POST", "/v0/watch", {"topics": {name: {"from_seq": 0}}})
    return _lines(server, f"/v0/watch/{made.json()['wid']}", name) if made.is_success else outcome(made)


def socket_command(**command: Any) -> Run:
    """A command on a WebSocket. The error of a message has a code and no status."""

    def run(server: MatrixServer, name: str) -> Outcome:
        text = ""
        with server.client.websocket() as socket:
            socket.send(json.dumps(command).replace("{name}", name))
            while texts_of(name)[0][-1] not in text:
                message = socket.next()
                if message["op"] == "error":
                    return Outcome(message["code"], message["message"])
                if message["op"] == "ack":
                    return DONE
                text += json.dumps(message)
        return seen(text, name)

    return run


def drop_topic(server: MatrixServer, name: str) -> Outcome:
    response = server.ask("DELETE", _path("/v0/topics/{topic}", name))
    if response.is_success and not response.json()["deleted"]:
        return Outcome("not found")
    return outcome(response)


def push_jobs(server: MatrixServer, name: str) -> Outcome:
    with server.client.http.stream("GET", _path("/v0/topics/{topic}/work?node=n", name)) as response:
        if not response.is_success:
            response.read()
        return outcome(response)


def redrive_into(server: MatrixServer, name: str) -> Outcome:
    queue = f"worn-{next(_numbers)}"
    server.client.queue(queue, [NEW], max_deliveries=1, dead_letter=f"{queue}:dead")
    server.client.claim(queue)
    server.client.nack(queue, [1])
    return outcome(server.ask("POST", f"/v0/topics/{queue}:dead/redrive", {"to": name}))


def fork(server: MatrixServer, name: str) -> Outcome:
    copy = f"/v1/stream/fork/{next(_numbers)}"
    made = server.client.http.put(copy, headers={"stream-forked-from": f"/v1/stream/{quote(name)}"})
    return seen(server.client.http.get(copy).text, name) if made.is_success else outcome(made)


def close_stream(server: MatrixServer, name: str) -> Outcome:
    return outcome(server.client.http.post(f"/v1/stream/{quote(name)}", headers={"stream-closed": "true"}))


def command(*arguments: str, reads: bool = True) -> Run:
    """A command, which ends with an exit code."""

    def run(server: MatrixServer, name: str) -> Outcome:
        result = server.cli(*(each.replace("{name}", name) for each in arguments))
        if result.exit_code:
            return Outcome(f"exit {result.exit_code}", " ".join(result.stderr.split()))
        return seen(result.stdout, name) if reads else DONE

    return run


def bulk_read(server: MatrixServer, name: str) -> Outcome:
    """As Spark and the pipeline read a server."""
    history = open_history(url=server.url)
    try:
        info = history.log(name)
        rows = [batch.to_pylist() for piece in history.pieces(info, 0, info.head, 1000) for batch in piece.read()]
    finally:
        history.close()
    return seen(str(rows), name)


def lake_rows(server: MatrixServer, name: str) -> Outcome:
    """As a round of the pipeline fills a lake. What Spark makes of it is tested with Spark."""
    history = open_history(url=server.url)
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        work_here(patch)
        lake = Lake.at(Path(directory))
        try:
            run_round(NO_SPARK, history, lake, Silent(), Chosen([name]))
        except UnknownLogs as error:
            return Outcome("not found", str(error))
        finally:
            history.close()
        rows = layout.records(lake).open().to_pyarrow_table().to_pylist()
    return seen(str(rows), name)


def bulk_append(server: MatrixServer, name: str) -> Outcome:
    """As Spark and imports write to a server."""
    try:
        with open_target(LogLocation(url=server.url)) as target:
            target.append(name, table({"text": "new"}))
    except Conflict as error:
        return Outcome(f"{error.status} {error.code}", str(error))
    return DONE


def pull(server: MatrixServer, name: str) -> Outcome:
    bound = "" if name.startswith("page/") else "?full=true"
    return read("GET", "/pull/{path}" + bound)(server, name)


def watch_document(server: MatrixServer, name: str) -> Outcome:
    start = "" if name.startswith("page/") else "?checkpoint=0"
    return live("/live/{path}" + start)(server, name)


def push(server: MatrixServer, name: str) -> Outcome:
    pulled = server.ask("GET", _path("/pull/{path}", name))
    base = {"baseHash": pulled.json()["hash"]} if name.startswith("page/") else {}
    return call("POST", "/push/{path}", {"data": {"text": "new"}, **base})(server, name)


def _of_table(operation: str, name: str) -> str:
    name_of_table, _, parent = name.partition("/")
    return f"/tables/{name_of_table}/auth/{operation}?parent={quote(parent) or 'p'}"


def list_rows(server: MatrixServer, name: str) -> Outcome:
    return read("GET", _of_table("list", name))(server, name)


def search_rows(server: MatrixServer, name: str) -> Outcome:
    return read("GET", _of_table("search", name) + "&query=lamp")(server, name)


def watch_rows(server: MatrixServer, name: str) -> Outcome:
    return _lines(server, _of_table("live", name), name)


def count_rows(server: MatrixServer, name: str) -> Outcome:
    return read("GET", _of_table("counts", name) + "&by=text")(server, name)


def list_removed(server: MatrixServer, name: str) -> Outcome:
    return outcome(server.ask("GET", _of_table("trash", name)))


def read_row(operation: str) -> Run:
    def run(server: MatrixServer, name: str) -> Outcome:
        name_of_table, _, parent = name.partition("/")
        row = quote(f"{parent or 'p'}:2")
        return outcome(server.ask("GET", f"/tables/{name_of_table}/auth/{operation}?id={row}"))

    return run


def append_row(server: MatrixServer, name: str) -> Outcome:
    name_of_table, _, parent = name.partition("/")
    row = {"parent": parent or "p", "payload": {"text": "new"}}
    return call("POST", f"/tables/{name_of_table}/append", row)(server, name)


def change_row(operation: str, seq: int = 1, **more: Any) -> Run:
    def run(server: MatrixServer, name: str) -> Outcome:
        name_of_table, _, parent = name.partition("/")
        row = {"id": f"{parent or 'p'}:{seq}", **more}
        return call("POST", f"/tables/{name_of_table}/{operation}", row)(server, name)

    return run


class Operation(NamedTuple):
    """``cells`` are the outcomes by kind of log that are not ``yes``."""

    protocol: str
    title: str
    run: Run
    cells: dict[str, str]
    #: Whether it changes the log; a log that refuses it must stay as it is.
    changes: bool = False


def _cells(*names: str, cell: str) -> dict[str, str]:
    return dict.fromkeys(names, cell)


NEW = {"text": "new", "at": AT}
OWNED = ("table", "collection", "regular document")
EVERY_JSON = ("topic", "queue", "stream", "stream with schema", *OWNED)
NOT_JSON = {"stream of text": "409 not_json"}
NO_TOPIC = {**NOT_JSON, "internal log": "404 topic_not_found"}
BAD_TOPIC = {**NOT_JSON, "internal log": "400 invalid_request"}
OWNED_TOPIC = _cells(*OWNED, cell="409 not_writable")
CHECKED_TOPIC = {**OWNED_TOPIC, "stream with schema": "409 not_writable"}
NO_QUEUE = {**_cells(*EVERY_JSON, cell="409 not_a_queue"), **NO_TOPIC, "queue": YES}
NO_JOBS = _cells(*[kind for kind in KINDS if kind != "queue"], cell="409 not_a_queue")
NO_QUEUE_COMMAND = {**_cells(*NO_JOBS, cell="exit 6"), "internal log": "exit 3"}
NO_DEAD_LETTERS = _cells(*[kind for kind in KINDS if kind not in ("topic", "queue")], cell="400 invalid_request")
RESERVED = {"internal log": "400 bad_request"}
OWNED_STREAM = {**_cells(*OWNED, cell="409 conflict"), **RESERVED}
UNSEARCHED = _cells(
    "topic", "queue", "stream", "stream of text", "regular document", "internal log", cell="400 bad_request"
)
OWNED_LOG = _cells("stream with schema", *OWNED, "internal log", cell="409 not_writable")
BAD_SUBSCRIPTION = {"internal log": "400 INVALID_REQUEST"}
NO_WAKES = _cells("stream with schema", "stream of text", *OWNED, "internal log", cell="400 INVALID_REQUEST")
NO_DOCUMENT = _cells(*[kind for kind in KINDS if kind not in ("collection", "regular document")], cell="404 Not Found")
NO_TABLE = _cells(*[kind for kind in KINDS if kind != "table"], cell="404 NOT_FOUND")
OWNED_COMMAND = _cells(*OWNED, cell="exit 6")
UNLISTED = {"internal log": NOT_LISTED}

Rows = dict[str, tuple[Run, dict[str, str]]]

READS: dict[str, Rows] = {
    "topics": {
        "list": (
            listed("/v0/topics?page_size=1000&prefix={topic}"),
            {"stream of text": NOT_LISTED, **UNLISTED},
        ),
        "describe": (call("GET", "/v0/topics/{topic}"), NO_TOPIC),
        "read": (read("POST", "/v0/topics/{topic}/diff", {"from_seq": 0}), NO_TOPIC),
        "watch (SSE)": (watch_topic, NO_TOPIC),
        "watch (WebSocket)": (
            socket_command(op="subscribe", topics={"{name}": {"from_seq": 0}}),
            {"stream of text": "not_json", "internal log": "topic_not_found"},
        ),
        "commit a consumer's position": (call("PUT", "/v0/topics/{topic}/consumers/c", {"seq": 1}), NO_TOPIC),
        "read the positions of consumers": (call("GET", "/v0/topics/{topic}/consumers"), NO_TOPIC),
        "join a consumer group": (call("POST", "/v0/topics/{topic}/groups/g", {"node": "n"}), NO_TOPIC),
        "delete a consumer's position": (call("DELETE", "/v0/topics/{topic}/consumers/c"), NO_TOPIC),
        "forward from it with a router": (
            call("PUT", "/v0/routers/r{number}", {"source": "{name}", "dest": "copies-{number}"}),
            BAD_TOPIC,
        ),
    },
    "streams": {
        "list": (listed("/v1/streams?limit=1000&prefix={topic}"), UNLISTED),
        "head": (call("HEAD", "/v1/stream/{path}"), {"internal log": "400"}),
        "read": (read("GET", "/v1/stream/{path}"), RESERVED),
        "long-poll": (read("GET", "/v1/stream/{path}?offset=-1&live=long-poll"), RESERVED),
        "watch (SSE)": (live("/v1/stream/{path}?offset=-1&live=sse"), RESERVED),
        "`_search`": (read("GET", "/v1/stream/{path}/_search?q=lamp"), UNSEARCHED),
        "`_aggregate`": (
            call(
                "POST",
                "/v1/stream/{path}/_aggregate",
                {"rollup": "all", "from": AT, "to": "2026-11-03T09:00:00Z", "interval": "1h"},
            ),
            {**UNSEARCHED, "table": "400 bad_request", "collection": "400 bad_request"},
        ),
        "`_details`": (call("GET", "/v1/stream/{path}/_details"), RESERVED),
        "`_index_status`": (call("GET", "/v1/stream/{path}/_index_status"), RESERVED),
        "read by key": (call("GET", "/v1/stream/{path}/pk/key"), RESERVED),
        "read the schema": (call("GET", "/v1/stream/{path}/_schema"), RESERVED),
        "read the profile": (call("GET", "/v1/stream/{path}/_profile"), RESERVED),
        "fork": (fork, RESERVED),
        "subscribe to it": (
            call(
                "PUT",
                "/v1/stream/__ds/subscriptions/s{number}",
                {"type": "pull-wake", "streams": ["{name}"], "wake_stream": "wakes"},
            ),
            BAD_SUBSCRIPTION,
        ),
    },
    "collections": {
        "pull": (pull, NO_DOCUMENT),
        "watch (SSE)": (watch_document, NO_DOCUMENT),
    },
    "tables": {
        "list": (list_rows, NO_TABLE),
        "read a row": (read_row("read"), NO_TABLE),
        "read the history of a row": (read_row("history"), NO_TABLE),
        "list removed rows": (list_removed, NO_TABLE),
        "count by a field": (count_rows, NO_TABLE),
        "search": (search_rows, NO_TABLE),
        "watch (SSE)": (watch_rows, NO_TABLE),
    },
    "arrow": {
        "list": (listed("/arrow/logs?prefix={topic}"), UNLISTED),
        "describe": (call("GET", "/arrow/logs/{path}"), {}),
        "read": (bulk_read, {}),
    },
    "pipeline": {"copy to the lake": (lake_rows, {"internal log": "not found"})},
    "console": {
        "describe": (call("GET", "/console/api/log/{path}"), {}),
        "read": (read("GET", "/console/api/log/{path}/records"), {}),
        "list its keys": (call("GET", "/console/api/log/{path}/keys"), {}),
        "count matching records": (call("GET", "/console/api/log/{path}/matches?filter=text:lamp"), {}),
        "propose searchable fields": (call("GET", "/console/api/log/{path}/inference"), {}),
        "watch (SSE)": (live("/console/api/log/{path}/tail?after=0"), {}),
        "show its jobs": (call("GET", "/console/api/queue/{path}"), NO_JOBS),
    },
    "command line": {
        "`log show`": (command("log", "show", "{name}", reads=False), {"internal log": "exit 2"}),
        "`log tail`": (command("log", "tail", "{name}"), {"internal log": "exit 3"}),
        "`search`": (command("search", "{name}", "lamp"), dict.fromkeys(UNSEARCHED, "exit 2")),
        "`sql`": (command("sql", 'select data from "{name}"', "--csv"), {}),
        "`queue peek`": (command("queue", "peek", "{name}", reads=False), NO_QUEUE_COMMAND),
    },
}
CHANGES: dict[str, Rows] = {
    "topics": {
        "append": (
            call("POST", "/v0/topics/{topic}", {"records": [{"data": NEW}]}),
            {**CHECKED_TOPIC, **BAD_TOPIC},
        ),
        "append (WebSocket)": (
            socket_command(op="publish", topic="{name}", records=[{"data": NEW}]),
            {
                **_cells("stream with schema", *OWNED, cell="not_writable"),
                "stream of text": "not_json",
                "internal log": "invalid_request",
            },
        ),
        "append to several": (
            call("POST", "/v0/write", {"writes": [{"topic": "{name}", "records": [{"data": NEW}]}]}),
            {**CHECKED_TOPIC, **BAD_TOPIC},
        ),
        "configure": (call("PUT", "/v0/topics/{topic}", {"ttl_ms": 3_600_000}), {**OWNED_TOPIC, **BAD_TOPIC}),
        "make it searchable": (
            call("PUT", "/v0/topics/{topic}", {"search": SEARCH["search"]}),
            {**OWNED_TOPIC, **BAD_TOPIC},
        ),
        "delete records": (
            call("POST", "/v0/topics/{topic}/delete", {"before_seq": 2}),
            {**OWNED_TOPIC, **NO_TOPIC},
        ),
        "drop": (drop_topic, {**OWNED_TOPIC, **NOT_JSON, "internal log": "not found"}),
        "forward into it with a router": (
            call("PUT", "/v0/routers/r{number}", {"source": "origin", "dest": "{name}"}),
            {**CHECKED_TOPIC, **BAD_TOPIC},
        ),
        "claim jobs": (call("POST", "/v0/topics/{topic}/claim", {"node": "n"}), NO_QUEUE),
        "acknowledge jobs": (call("POST", "/v0/topics/{topic}/ack", {"node": "n", "seqs": [1]}), NO_QUEUE),
        "return jobs": (
            call("POST", "/v0/topics/{topic}/nack", {"node": "n", "seqs": [1], "reason": "no"}),
            NO_QUEUE,
        ),
        "extend leases": (
            call("POST", "/v0/topics/{topic}/extend", {"node": "n", "seqs": [1], "lease_ms": 1000}),
            NO_QUEUE,
        ),
        "receive pushed jobs (SSE)": (push_jobs, NO_QUEUE),
        "send dead letters into it": (
            call("PUT", "/v0/topics/dead-{number}", {"type": "queue", "dead_letter": "{name}"}),
            NO_DEAD_LETTERS,
        ),
        "redrive dead letters from it": (
            call("POST", "/v0/topics/{topic}/redrive", {"to": "origin"}),
            {**OWNED_TOPIC, **NO_TOPIC},
        ),
        "redrive dead letters into it": (redrive_into, {**CHECKED_TOPIC, **NO_TOPIC}),
    },
    "streams": {
        "append": (call("POST", "/v1/stream/{path}", NEW), {**OWNED_STREAM, "stream of text": "409 conflict"}),
        "make it searchable": (
            call("POST", "/v1/stream/{path}/_schema", {"search": SEARCH["search"]}),
            {**OWNED_STREAM, "stream of text": "400 bad_request"},
        ),
        "install a profile": (call("POST", "/v1/stream/{path}/_profile", PROFILE), OWNED_STREAM),
        "ingest traces (OTLP)": (
            call("POST", "/v1/stream/{path}/_otlp/v1/traces", {"resourceSpans": []}),
            {**_cells(*KINDS, cell="400 bad_request"), **OWNED_STREAM},
        ),
        "close": (close_stream, OWNED_STREAM),
        "delete": (call("DELETE", "/v1/stream/{path}"), OWNED_STREAM),
        "send wakes into it": (
            call(
                "PUT",
                "/v1/stream/__ds/subscriptions/s{number}",
                {"type": "pull-wake", "pattern": "none/*", "wake_stream": "{name}"},
            ),
            NO_WAKES,
        ),
    },
    "collections": {"push": (push, NO_DOCUMENT)},
    "tables": {
        "append": (append_row, NO_TABLE),
        "edit a row": (change_row("update", patch={"text": "new"}), NO_TABLE),
        "remove a row": (change_row("rm"), NO_TABLE),
        "restore a row": (change_row("restore", 3), NO_TABLE),
    },
    "arrow": {"append": (bulk_append, OWNED_LOG)},
    "command line": {
        "`log append`": (
            command("log", "append", "{name}", json.dumps(NEW), reads=False),
            {**OWNED_COMMAND, "internal log": "exit 2"},
        ),
        "`log configure`": (
            command("log", "configure", "{name}", "--ttl", "1h", reads=False),
            {**OWNED_COMMAND, "stream of text": "exit 6", "internal log": "exit 3"},
        ),
        "`log delete --all`": (
            command("log", "delete", "{name}", "--all", "--yes", reads=False),
            {**OWNED_COMMAND, "internal log": "exit 3"},
        ),
        "`queue enqueue`": (command("queue", "enqueue", "{name}", json.dumps(NEW), reads=False), NO_QUEUE_COMMAND),
        "`queue claim`": (command("queue", "claim", "{name}", reads=False), NO_QUEUE_COMMAND),
        "`queue redrive`": (
            command("queue", "redrive", "{name}", reads=False),
            {**OWNED_COMMAND, "queue": "exit 6", "stream of text": "exit 6", "internal log": "exit 3"},
        ),
    },
}
OPERATIONS = [
    Operation(protocol, title, run, cells, changes)
    for changes, protocols in ((False, READS), (True, CHANGES))
    for protocol, rows in protocols.items()
    for title, (run, cells) in rows.items()
]


def side_cell(operation: Operation) -> str:
    """What happens to the changes and to the feed of a table: the same as to its rows, but they are not rows, and have
    no searchable fields."""
    if operation.protocol == "tables":
        return operation.cells["topic"]
    if operation.title in ("`_search`", "`search`"):
        return operation.cells["regular document"]
    return operation.cells.get("table", YES)


def matrix_table(changes: bool) -> Iterator[str]:
    """The table of the document."""
    yield f"| protocol | operation | {' | '.join(KINDS)} |"
    yield "|" + "---|" * (len(KINDS) + 2)
    for operation in OPERATIONS:
        if operation.changes is changes:
            cells = [operation.cells.get(kind, YES) for kind in KINDS]
            shown = [cell if cell in (YES, NOT_LISTED, "not found") else f"`{cell}`" for cell in cells]
            yield f"| {operation.protocol} | {operation.title} | {' | '.join(shown)} |"
