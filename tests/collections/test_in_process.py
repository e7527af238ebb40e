"""Collections that a program uses in process, on an engine of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.collections_in_process import opened

from strandline.collections import (
    BadCollections,
    Caller,
    Collection,
    CollectionError,
    Collections,
    FieldPermission,
    Namespace,
    QueueEvents,
    ReadDocument,
)
from strandline.engine import Engine, ManualClock
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, sign
from strandline.signing.keys import Signer

NOW = 1_714_000_000_000
ANN = Caller(identity="ann")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path, clock=ManualClock(NOW), background=False) as engine:
        yield engine


def diary(**options: Any) -> Collection:
    """Documents that only the user of their path may read and write."""
    return opened("diary", "users/{identity}/diary", read_roles=("self",), write_roles=("self",), **options)


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(CollectionError) as caught:
        action()
    return caught.value.code


def test_elements_are_appended_and_pulled(engine: Engine) -> None:
    collections = Collections(engine, [opened(path="events/{date}", listable=True)])
    first = collections.append("events/monday", {"n": 1}, ts=1000).wait()
    second = collections.append("events/monday", {"n": 2}).wait()
    assert (first.ts, second.ts) == (1000, NOW)
    pulled = collections.pull("events/monday", full=True)
    assert [(element.ts, element.data, element.proof) for element in pulled.elements] == [
        (1000, {"n": 1}, None),
        (NOW, {"n": 2}, None),
    ]
    assert (pulled.hash, pulled.more) == (second.hash, False)
    assert [element.data for element in collections.pull("events/monday", checkpoint=1000).elements] == [{"n": 2}]
    assert collections.pull("events/tuesday", last=1) == ([], "", False)
    assert collections.list("events") == ["monday"]


def test_documents_are_those_that_a_server_finds(engine: Engine) -> None:
    Collections(engine, [opened(durability="memory")]).append("events", {"n": 1}).wait()
    again = Collections(engine, [opened(durability="memory")])
    assert [element.data for element in again.pull("events", last=5).elements] == [{"n": 1}]
    assert code_of(lambda: again.append("events", {}, ts=1)) == "time_not_increasing"


def test_pages_say_that_there_is_more(engine: Engine) -> None:
    collections = Collections(engine, [opened(allow_full=False, max_pull_limit=2)])
    for n in range(3):
        collections.append("events", {"n": n}, ts=n + 1).wait()
    page = collections.pull("events", checkpoint=0)
    assert ([element.ts for element in page.elements], page.more) == ([1, 2], True)
    page = collections.pull("events", checkpoint=page.elements[-1].ts)
    assert ([element.ts for element in page.elements], page.more) == ([3], False)
    assert code_of(lambda: collections.pull("events", full=True)) == "full_not_allowed"
    assert code_of(lambda: collections.pull("events")) == "bound_required"


def test_a_caller_needs_the_roles_and_the_program_does_not(engine: Engine) -> None:
    permissions = {
        "mood": FieldPermission(read_roles=("doctor",), write_roles=("doctor",)),
        "text": FieldPermission(read_roles=("self",), write_roles=("self",)),
    }
    collections = Collections(engine, [diary(field_permissions=permissions)])
    collections.append("users/ann/diary", {"text": "rain", "mood": "low"}).wait()
    assert code_of(lambda: collections.append("users/ben/diary", {}, caller=ANN)) == "forbidden"
    assert code_of(lambda: collections.pull("users/ben/diary", last=1, caller=ANN)) == "forbidden"
    assert code_of(lambda: collections.append("users/ann/diary", {"mood": "high"}, caller=ANN)) == "field_not_writable"
    collections.append("users/ann/diary", {"text": "sun"}, caller=ANN).wait()
    own = collections.pull("users/ann/diary", full=True, caller=ANN).elements[0]
    all_of_it = collections.pull("users/ann/diary", full=True).elements[0]
    assert (own.data, all_of_it.data) == ({"text": "rain"}, {"text": "rain", "mood": "low"})


def test_a_required_proof_is_checked_and_shown(engine: Engine) -> None:
    collections = Collections(engine, [opened(require_author_signature=True)])
    author, data = Signer.generate(), {"text": "mine"}
    proof = sign(author, "events", data)
    assert code_of(lambda: collections.append("events", data)) == "missing_proof"
    assert code_of(lambda: collections.append("events", {"text": "other"}, proof=proof)) == "invalid_proof"
    collections.append("events", data, proof=proof).wait()
    assert collections.pull("events", last=1).elements[0].proof == proof


def test_an_event_is_a_record_of_a_log(engine: Engine) -> None:
    queue = QueueEvents(topic="news", include_body=True)
    collections = Collections(engine, [opened(queue=queue)])
    appended = collections.append("events", {"n": 1}).wait()
    (record,) = engine.log("news").read()
    assert json.loads(record.data) == {
        "collection": "events",
        "hash": appended.hash,
        "timestamp": NOW,
        "body": {"n": 1},
    }
    others = Collections(engine, [opened("more", "more", queue=QueueEvents(topic="events"))])
    assert code_of(lambda: others.append("more", {"n": 1})) == "queue_unavailable"
    assert engine.find("more") is None, "nothing was stored"


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        ("elsewhere", {}, "path_not_found"),
        ("events/a b", {}, "invalid_path"),
        ("regular", {}, "path_not_found"),
        ("events/a", {"n": object()}, "invalid_data"),
        ("events/a", [1], "invalid_data"),
        ("events/a", {"n": "x" * 65536}, "too_large"),
        ("events/a", {"n": json.loads("[" * 70 + "]" * 70)}, "too_deep"),
    ],
)
def test_what_cannot_be_appended(engine: Engine, path: str, data: Any, code: str) -> None:
    regular = Collection(name="regular", storage_path="regular", read_roles=("public",))
    collections = Collections(engine, [opened(path="events/{date}"), regular])
    assert code_of(lambda: collections.append(path, data)) == code
    assert list(engine.names()) == []


def test_a_log_of_another_protocol_is_not_a_document(engine: Engine) -> None:
    engine.create("events").wait()
    collections = Collections(engine, [opened()])
    assert code_of(lambda: collections.append("events", {})) == "not_a_document"


def test_namespaces_have_paths_of_their_own(engine: Engine) -> None:
    collections = Collections(engine, [Namespace(name="team", collections=[opened("chat", "chat")])])
    collections.append("chat", {"n": 1}, namespace="team").wait()
    assert collections.pull("chat", last=1, namespace="team").elements[0].data == {"n": 1}
    assert code_of(lambda: collections.pull("chat", last=1)) == "path_not_found"
    assert code_of(lambda: collections.pull("chat", last=1, namespace="staff")) == "path_not_found"


def test_declarations_that_contradict_themselves_are_refused(engine: Engine) -> None:
    with pytest.raises(BadCollections, match="cannot be both pull_only and push_only"):
        Collections(engine, [opened(pull_only=True, push_only=True)])


def test_threads_append_to_one_document(engine: Engine) -> None:
    collections = Collections(engine, [opened(durability="memory")])

    def append(writer: int) -> None:
        for n in range(50):
            collections.append("events", {"writer": writer, "n": n}).wait()
            collections.pull("events", last=1)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elements = collections.pull("events", full=True).elements
    times = [element.ts for element in elements]
    assert len(elements) == 200
    assert times == sorted(set(times))
    for writer in range(4):
        assert [one.data["n"] for one in elements if one.data["writer"] == writer] == list(range(50))


def test_only_collections_and_namespaces_are_declarations(engine: Engine) -> None:
    with pytest.raises(BadCollections, match="is not a Collection or a Namespace"):
        Collections(engine, [("events", "events/{date}")])  # type: ignore[list-item]


# --- regular documents ----------------------------------------------------------------------------------------------


def test_a_regular_document_is_pushed_and_read(engine: Engine) -> None:
    fields = {"secret": FieldPermission(read_roles=("admin",))}
    members = Collection(
        name="members", storage_path="members", read_roles=("guest",), write_roles=("admin",), field_permissions=fields
    )
    collections = Collections(engine, [members, opened()])
    assert collections.read("members") == ReadDocument({}, "", None)
    proof = sign(Signer("01" * 32), "members", {"n": 1, "secret": 2}, DOCUMENT_DOMAIN)
    first = collections.push("members", {"n": 1, "secret": 2}, proof=proof).wait()
    assert collections.read("members") == ReadDocument({"n": 1, "secret": 2}, first.hash, proof)
    guest = Caller(identity="g", roles=frozenset(("guest",)))
    assert collections.read("members", caller=guest).data == {"n": 1}
    assert code_of(lambda: collections.push("members", {}, base_hash=first.hash, caller=guest)) == "forbidden"
    assert code_of(lambda: collections.push("members", {})) == "hash_mismatch"
    engine.seal()
    second = collections.push("members", {"n": 2}, base_hash=first.hash).wait()
    assert (second.ts, collections.read("members").data) == (NOW, {"n": 2})


def test_each_kind_of_document_has_its_own_operations(engine: Engine) -> None:
    regular = Collection(name="regular", storage_path="regular", read_roles=("public",))
    collections = Collections(engine, [opened(), regular])
    for wrong in (
        lambda: collections.append("regular", {}),
        lambda: collections.pull("regular", full=True),
        lambda: collections.push("events", {}),
        lambda: collections.read("events"),
    ):
        with pytest.raises(CollectionError, match=r"; use (push and read|append and pull)") as caught:
            wrong()
        assert caught.value.code == "path_not_found"
