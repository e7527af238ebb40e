"""The error codes of all protocols: every exception in the registry, raised by a handler of every protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from support.every_protocol import COLLECTIONS
from support.tables_client import POLLS

from strandline.client import errors as client_errors
from strandline.client import live as client_live
from strandline.collections.settings import CollectionsSettings
from strandline.delivery.queues.jobs import QueueError
from strandline.engine import errors as engine_errors
from strandline.engine.errors import (
    BadConfig,
    BadName,
    BadRequest,
    BatchTooLarge,
    DamagedFile,
    DiskFull,
    EngineClosed,
    EngineError,
    FollowsLeader,
    JournalFailed,
    LogFull,
    NoReplica,
    NotWritable,
    QuotaExceeded,
    RecordTooLarge,
    ReplicaAway,
    ReplicaBehind,
    SealingBehind,
    UnknownLog,
)
from strandline.protocols.arrow import errors as arrow
from strandline.protocols.collections import errors as collections
from strandline.protocols.console import errors as console
from strandline.protocols.streams import errors as streams
from strandline.protocols.tables import errors as tables
from strandline.protocols.topics import errors as topics
from strandline.query.errors import QueryError
from strandline.server.application import Application
from strandline.server.declarations import load
from strandline.server.settings import ServerSettings, Settings, StorageSettings
from strandline.service import problems
from strandline.service.http import Call, Head, Reply
from strandline.service.problems import RULES, Problem, Refusal, Throttled

#: One of every exception in the registry.
ERRORS: dict[type[Exception], Exception] = {
    UnknownLog: UnknownLog("absent"),
    LogFull: LogFull("full", 2, 100, 9, 8, 2, 50),
    Throttled: Throttled(1_500),
    SealingBehind: SealingBehind(200, 100),
    QuotaExceeded: QuotaExceeded("max_total_bytes", 100),
    NotWritable: NotWritable("owned", "it has rows of a table"),
    BatchTooLarge: BatchTooLarge("small", 3, 300, 2, 100),
    RecordTooLarge: RecordTooLarge(0, 300, 100),
    BadRequest: BadRequest("the batch is empty"),
    BadName: BadName("\x00", "it has a control character"),
    BadConfig: BadConfig("ttl_ms", -1, "it must not be negative"),
    QueueError: QueueError("the lease is too long"),
    QueryError: QueryError("unknown field 'x'"),
    msgspec.ValidationError: msgspec.ValidationError("Expected `int`"),
    msgspec.DecodeError: msgspec.DecodeError("Input data was truncated"),
    msgspec.MsgspecError: msgspec.EncodeError("Integer exceeds 64-bit range"),
    UnicodeDecodeError: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    RecursionError: RecursionError(),
    EngineClosed: EngineClosed(),
    DiskFull: DiskFull("data", 100),
    DamagedFile: DamagedFile("segments/00000001.arrow", "a checksum differs"),
    JournalFailed: JournalFailed("journal", OSError(5, "Input/output error")),
    FollowsLeader: FollowsLeader(lambda: "leader:4000"),
    ReplicaBehind: ReplicaBehind(5_000),
    ReplicaAway: ReplicaAway("copied"),
    NoReplica: NoReplica("copied"),
}

#: What does not reach clients as it is: tools and the start of a server report it, one protocol answers it in its own
#: way, or it is a defect. If a handler raises it all the same, the answer is ``internal``.
NOT_SHARED = {
    "BadRecord",  # a BadRequest
    "DirectoryInUse",
    "JournalIncomplete",  # a DamagedFile
    "LogExists",
    "LogHasForks",
    "MissingFile",  # a DamagedFile
    "NoDataDirectory",
    "NoSpaceToStart",
    "ProducerFenced",
    "ProducerGap",
    "Superseded",  # the cause of a JournalFailed
    "UnknownSeq",
    "UnsupportedFormat",
    "WorkerFailed",
}


class Protocol(NamedTuple):
    #: A route of the protocol.
    path: str
    problems: Mapping[str, Problem]
    renamed: Mapping[Problem, Problem] = {}
    noun: str = "log"
    #: Detail members that the protocol calls otherwise.
    members: Mapping[str, str] = {}
    #: What the body says: code, message and details.
    said: Callable[[Any], tuple[str, str, dict[str, Any]]] = lambda body: (
        body["error"]["code"],
        body["error"]["message"],
        body["error"].get("detail", {}),
    )


def said_by_streams(body: Any) -> tuple[str, str, dict[str, Any]]:
    error = dict(body["error"])
    return error.pop("code"), error.pop("message"), error


def said_by_collections(body: Any) -> tuple[str, str, dict[str, Any]]:
    rest = {name: value for name, value in body.items() if name not in ("error", "message")}
    return body["error"], body.get("message", body["error"]), rest


PROTOCOLS: dict[str, Protocol] = {
    "topics": Protocol("/v0/topics/a", topics.PROBLEMS, topics.RENAMED, topics.NOUN, topics.MEMBERS),
    "streams": Protocol("/v1/stream/a", streams.PROBLEMS, streams.RENAMED, streams.NOUN, said=said_by_streams),
    "arrow": Protocol("/arrow/logs/a", arrow.PROBLEMS),
    "console": Protocol("/console/api/log/a", console.PROBLEMS),
    "tables": Protocol("/tables/note/auth/list", tables.PROBLEMS, tables.RENAMED),
    "collections": Protocol(
        "/pull/open/a", collections.PROBLEMS, collections.RENAMED, collections.NOUN, said=said_by_collections
    ),
}
#: The texts that collections have instead of a message.
TEXTS = {"payload_too_large": "Payload too large"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], httpx.Response]:
    """The answers of one application, by protocol and exception. The handlers raise the exceptions; everything else of
    a route is as the protocol has it."""
    place = tmp_path_factory.mktemp("problems")
    (place / "collections.json").write_text(json.dumps(COLLECTIONS))
    settings = Settings(
        storage=StorageSettings(data_dir=str(place / "data")),
        server=ServerSettings(declare=str(POLLS)),
        collections=CollectionsSettings(config_file=str(place / "collections.json")),
    )
    application = Application(settings, declared=load(str(POLLS)))
    raised: dict[str, Exception] = {kind.__name__: error for kind, error in ERRORS.items()}
    raised["ZeroDivisionError"] = ZeroDivisionError("a secret of the server")

    async def main() -> dict[tuple[str, str], httpx.Response]:
        found: dict[tuple[str, str], httpx.Response] = {}
        transport = httpx.ASGITransport(application.app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            application.app.router.lifespan_context(application.app),
        ):
            while not application.status.ready:
                await asyncio.sleep(0.001)
            for name, protocol in PROTOCOLS.items():
                head = Head("GET", protocol.path, "", {})
                application.gate.find(head)
                assert head.route is not None, name
                for error_name, error in raised.items():
                    path = f"/raises/{name}/{error_name}"
                    route = msgspec.structs.replace(
                        head.route, path=path, handler=raising(error), names=(), spans="", fast=False
                    )
                    application.gate.add("server", [route])
                    found[name, error_name] = await client.get(path)
        return found

    return asyncio.run(main())


def raising(error: Exception) -> Callable[[Call], Reply]:
    def handler(call: Call) -> Reply:
        raise error

    return handler


def test_there_is_one_of_every_exception_in_the_registry() -> None:
    assert set(ERRORS) == {rule.error for rule in RULES}


def test_every_error_of_the_engine_is_in_the_registry_or_known_not_to_be() -> None:
    found = {
        name
        for name, value in vars(engine_errors).items()
        if isinstance(value, type) and issubclass(value, EngineError)
    }
    shared = {kind.__name__ for kind in ERRORS if issubclass(kind, EngineError)}
    assert found - {"EngineError"} == shared | NOT_SHARED


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.error.__name__)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_an_exception_is_answered_as_the_registry_says(
    answers: dict[tuple[str, str], httpx.Response], name: str, rule: problems.Rule
) -> None:
    protocol, error = PROTOCOLS[name], ERRORS[rule.error]
    problem = protocol.renamed.get(rule.problem, rule.problem)
    response = answers[name, rule.error.__name__]
    assert response.status_code == problem.status, response.text
    assert response.headers["content-type"].startswith("application/json")

    wait = getattr(error, "retry_after_ms", None) or problem.retry_after_ms or rule.problem.retry_after_ms
    seconds = response.headers.get("retry-after")
    if wait is None:
        assert seconds is None
    else:
        assert seconds is not None
        assert 0 <= int(seconds) * 1000 - wait < 1000, "whole seconds, rounded up"

    code, message, detail = protocol.said(response.json())
    assert message
    expected = {}
    for fact in rule.detail:
        member = {"name": protocol.noun}.get(fact, protocol.members.get(fact, fact))
        expected[member] = getattr(error, fact, rule.problem.retry_after_ms)
    if name == "collections":
        # The body has a text. Only some errors have a code in its place, and then they have details.
        coded = problem.code in ("standby", "read_only", "damaged_data", "replica_behind", "replica_away", "no_replica")
        assert code == problem.code if coded else code == message
        assert detail == (expected if coded else {})
    else:
        assert (code, detail) == (problem.code, expected)
    if name != "console":
        # The console only reads.
        assert protocol.problems[problem.code] == problem, "the code is documented"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_an_unforeseen_exception_is_answered_without_its_text(
    answers: dict[tuple[str, str], httpx.Response], name: str
) -> None:
    response = answers[name, "ZeroDivisionError"]
    assert response.status_code == 500
    assert "secret" not in response.text


# --- declared once ---------------------------------------------------------------------------------------------------


def shared_problems() -> Iterator[Problem]:
    yield from (value for value in vars(problems).values() if isinstance(value, Problem))


def test_a_shared_code_is_declared_once() -> None:
    codes = [problem.code for problem in shared_problems()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_code_that_a_protocol_has_from_the_registry_has_the_status_of_the_registry(name: str) -> None:
    shared = {problem.code: problem for problem in shared_problems()}
    for code, problem in PROTOCOLS[name].problems.items():
        if code in shared:
            assert (problem.status, problem.retry) == (shared[code].status, shared[code].retry), code


#: Codes that are documented with the messages of WebSockets.
ON_SOCKETS = {topics.INVALID_JSON, topics.UNSUPPORTED_MESSAGE, topics.SERVER_SHUTTING_DOWN}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_code_that_a_protocol_uses_is_documented(name: str) -> None:
    """A refusal is made of a problem, so a module that refuses with a code has the problem among its names."""
    package = import_module(f"strandline.protocols.{name}")
    protocol = PROTOCOLS[name]
    documented = set(protocol.problems.values())
    for module in walk_packages(package.__path__, package.__name__ + "."):
        if module.name.endswith((".errors", ".problems")):
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, Problem) and value not in ON_SOCKETS:
                assert protocol.renamed.get(value, value) in documented, (module.name, value.code)


def test_a_refusal_keeps_its_facts_when_a_protocol_renames_it() -> None:
    refusal = Refusal(problems.THROTTLED, "busy", {"head": 1}, retry_after_ms=1_001, headers=((b"a", b"b"),))
    renamed = refusal.renamed(streams.RENAMED, topics.MEMBERS)
    assert (renamed.code, renamed.status, renamed.message) == ("overloaded", 429, "busy")
    assert renamed.detail == {"head_seq": 1}
    assert renamed.headers == ((b"a", b"b"), (b"retry-after", b"2"))


# --- the Python client -----------------------------------------------------------------------------------------------


def test_the_client_knows_codes_that_servers_have() -> None:
    codes = {code for protocol in PROTOCOLS.values() for code in protocol.problems}
    assert set(client_errors._BY_CODE) <= codes
    assert "read_only" in codes


def test_the_client_has_the_statuses_of_errors_that_end_a_live_view() -> None:
    statuses = {code: problem.status for code, problem in tables.PROBLEMS.items()}
    assert {code: statuses[code] for code in client_live._STATUSES} == client_live._STATUSES
    assert {"CONFLICT", "THROTTLED", "DAMAGED_DATA", "INTERNAL", "UNAVAILABLE"} <= set(client_live._STATUSES)
