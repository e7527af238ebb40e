"""The catalog: which logs a key sees, how logs are listed, and who hears of new ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from support.arrow_client import ARROW, encode, table
from support.every_protocol import COLLECTIONS, Request
from support.server_process import ServerProcess
from support.tables_client import POLLS

from strandline.engine import Engine, Log, ManualClock
from strandline.engine.ownership import COLLECTION, GONE, TABLE
from strandline.service.access import ALL_SCOPES, FULL_ACCESS, Access
from strandline.service.catalog import METRICS_STREAM, Catalog
from strandline.service.kernel import Kernel

READER = Access("reader", frozenset({"read"}), ())


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path, clock=ManualClock(1_000_000), background=False) as engine:
        yield engine


@pytest.fixture
def catalog(engine: Engine) -> Catalog:
    """With what it posts done at once."""
    return Catalog(engine, engine.now, lambda action: action())


def hide(catalog: Catalog, name: str) -> Log:
    """A log that was deleted and is kept for a fork."""
    log, _ = catalog.create(name)
    catalog.create(f"{name}-fork", source=(log, 0))
    catalog.remove(log)
    assert GONE in log.notes
    return log


# --- what a key sees --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "access", "listed", "readable"),
    [
        ("plain", READER, True, True),
        ("plain", Access("k", ALL_SCOPES, ("other",)), False, False),
        ("hidden", READER, False, False),
        ("hidden", FULL_ACCESS, False, True),
        ("_internal", READER, False, False),
        ("_internal", FULL_ACCESS, False, True),
        ("__erasures__", READER, False, True),
        ("__erasures__", Access("k", ALL_SCOPES, ("other",)), False, False),
    ],
)
def test_what_a_key_sees(catalog: Catalog, name: str, access: Access, listed: bool, readable: bool) -> None:
    log = hide(catalog, name) if name == "hidden" else catalog.engine.create(name).wait()
    assert Catalog.visible(log, access) is listed
    assert Catalog.visible(log, access, internal=True) is readable
    assert (name in catalog.walk(access)) is listed


def test_names_are_listed_in_order_and_in_pieces(catalog: Catalog) -> None:
    names = [f"{letter}{number:03}" for letter in "ac" for number in range(400)]
    for name in reversed(names):
        catalog.create(name)
    hide(catalog, "b")
    catalog.engine.create("_own")
    expected = sorted([*names, "b-fork"])
    assert list(catalog.walk(FULL_ACCESS)) == expected
    assert catalog.visible_count == len(expected)
    assert list(catalog.walk(FULL_ACCESS, prefix="c", after="c397")) == ["c398", "c399"]
    assert catalog.names(FULL_ACCESS, 3, position=399) == ["a399", "b-fork", "c000"]
    assert list(catalog.walk(Access("k", ALL_SCOPES, ("a39", "b")), after="a397")) == ["a398", "a399", "b-fork"]
    assert list(catalog.walk(FULL_ACCESS, prefix="_", internal=True)) == ["_own"]
    assert "b" in catalog.walk(FULL_ACCESS, internal=True)


# --- who hears of new logs --------------------------------------------------------------------------------------------


def test_every_new_log_is_told_of_whoever_creates_it(catalog: Catalog) -> None:
    engine, heard = catalog.engine, list[str]()
    catalog.created[lambda log: heard.append(log.name)] = None
    catalog.create("topic")
    catalog.create("fork", source=(engine.log("topic"), 0))
    engine.create("table/1", notes={TABLE: True})
    engine.create("document", notes={COLLECTION: "c"})
    engine.create("__leases__:topic")
    engine.create(METRICS_STREAM)
    assert heard == ["topic", "fork", "table/1", "document"]
    catalog.stop()
    engine.create("later")
    assert "later" not in heard


def test_a_listener_that_fails_leaves_the_others_and_the_creation_alone(catalog: Catalog) -> None:
    heard: list[str] = []

    def fail(log: Log) -> None:
        raise ValueError(log.name)

    catalog.created[fail] = None
    catalog.created[lambda log: heard.append(log.name)] = None
    catalog.create("a")
    assert heard == ["a"]


def test_a_log_of_another_thread_is_told_of_on_the_loop_if_it_is_still_there(engine: Engine) -> None:
    heard: list[str] = []

    async def main() -> None:
        kernel = Kernel.for_tests(engine)
        kernel.catalog.created[lambda log: heard.append(f"{log.name} {asyncio.get_running_loop() is loop}")] = None
        loop = asyncio.get_running_loop()
        for create in (lambda: engine.create("kept"), lambda: engine.create("dropped").wait().drop()):
            thread = Thread(target=create)
            thread.start()
            thread.join()
        assert heard == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        kernel.stop()

    asyncio.run(main())
    assert heard == ["kept True"]


NEW_LOGS: dict[str, Request] = {
    "note/row": Request("POST", "/tables/note/append", {"parent": "row", "payload": {"a": 1}}),
    "open/document": Request("POST", "/push/open/document", {"data": {"a": 1}}),
    "imported": Request("POST", "/arrow/records/imported?create=true", encode(table({"a": 1})), ARROW),
    "streamed": Request("PUT", "/v1/stream/streamed", b'[{"a": 1}]', "application/json"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    place = tmp_path_factory.mktemp("catalog")
    (place / "collections.json").write_text(json.dumps(COLLECTIONS))
    settings = {"config_file": str(place / "collections.json"), "declare": POLLS}
    process = ServerProcess(place / "data", keys="all,narrow:r:open/", settings=settings)
    try:
        yield process.start()
    finally:
        process.end()


def test_a_watch_with_a_pattern_hears_of_the_logs_of_every_protocol(server: ServerProcess) -> None:
    client, heard = server.client(), dict[str, str]()
    for key in ("all", "narrow"):
        url = server.client(key).call("POST", "/v0/watch", {"topics": {"*": {}}})["stream_url"]
        heard[key] = url
    with (
        server.client("all").events(heard["all"], key="all") as everything,
        server.client("narrow").events(heard["narrow"], key="narrow") as part,
    ):
        for name, request in NEW_LOGS.items():
            assert request.send(client).is_success, name
            assert everything.wait_for("record").json["topic"] == name
        assert part.wait_for("record").json["topic"] == "open/document"
