"""Queue events: in one step with the element, in a topic of the same server."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.collections_in_process import NOW, MakeStand, Stand, opened
from support.signed_calls import ALICE, device

from strandline.collections import QueueEvents
from strandline.engine import Config, Engine, ManualClock, Options
from strandline.engine.testing.fault_disk import Crashed, FaultDisk


def told(path: str = "events", **options: Any) -> Any:
    queue = {name: options.pop(name) for name in QueueEvents.__struct_fields__ if name in options}
    return opened(path=path, queue=QueueEvents(**queue), **options)


def test_every_append_is_told_in_a_topic_that_is_made_for_it(stand: MakeStand) -> None:
    server = stand(told(topic="news"))
    answers = [server.push("events", {"n": n}).json for n in range(3)]
    assert server.records("news") == [
        {"collection": "events", "hash": answer["hash"], "timestamp": answer["timestamp"]} for answer in answers
    ]
    assert server.ask("POST", "/v0/topics/news/diff", {}).json["head_seq"] == 3


def test_without_a_topic_it_is_called_like_the_collection(stand: MakeStand) -> None:
    server = stand(told("e/{id}"))
    server.pushed("e/1", {})
    assert len(server.records("events")) == 1


def test_an_event_has_what_was_asked_for(stand: MakeStand) -> None:
    server = stand(
        told("users/{identity}/{room}", include_params=True, include_body=True, include_identity=True,
             write_roles=("self",), topic="news")
    )  # fmt: skip
    path = f"users/{ALICE.user_id}/r1"
    answer = server.push(path, {"a": {"__proto__": 1}}, cap=(device(), ALICE)).json
    assert server.records("news") == [
        {
            "collection": "events",
            "hash": answer["hash"],
            "timestamp": answer["timestamp"],
            "params": {"identity": ALICE.user_id, "room": "r1"},
            "body": {"a": {"__proto__": 1}},
            "identity": ALICE.user_id,
        }
    ], "the body is what was sent, not what is kept of it"


def test_what_there_is_nothing_of_is_left_out(stand: MakeStand) -> None:
    server = stand(told(include_params=True, include_identity=True, topic="news"))
    server.pushed("events", {})
    assert set(server.records("news")[0]) == {"collection", "hash", "timestamp"}


def test_a_parameter_may_choose_the_topic(stand: MakeStand) -> None:
    server = stand(told("rooms/{room}", topic="news", subject_param="room", subject_id_pattern="[a-z]+"))
    for room in ("abc", "abc1", "x"):
        server.pushed(f"rooms/{room}", {})
    assert [len(server.records(topic)) for topic in ("news.abc", "news", "news.x")] == [1, 1, 1]


def test_the_topic_may_be_a_queue_whose_jobs_are_worked_on(stand: MakeStand) -> None:
    server = stand(told(topic="jobs", include_body=True))
    assert server.ask("PUT", "/v0/topics/jobs", {"type": "queue"}).status == 201
    server.pushed("events", {"n": 1}, {"n": 2})
    claimed = server.ask("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 5}).json["claimed"]
    assert [job["data"]["body"] for job in claimed] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("persist", [True, False])
def test_if_the_topic_is_full_nothing_is_stored(stand: MakeStand, persist: bool) -> None:
    server = stand(told(topic="jobs", persist=persist))
    server.engine.create("jobs", Config(cap_records=1, discard="reject")).wait()
    server.pushed("events", {"n": 1})
    refused = server.push("events", {"n": 2})
    assert refused.error == (503, "queue_unavailable")
    assert "full" in refused.json["message"]
    assert refused.headers["retry-after"] == "1"
    assert len(server.records("jobs")) == 1
    if persist:
        assert len(server.pull("events").items) == 1
    server.engine.log("jobs").delete(before=100).wait()
    assert server.push("events", {"n": 2}).status == 200


def test_a_document_whose_first_element_is_refused_is_not_there(stand: MakeStand) -> None:
    server = stand(told(topic="jobs", path="e/{id}"))
    server.engine.create("jobs", Config(cap_bytes=1, discard="reject")).wait()
    assert server.push("e/1", {}).status in (413, 503)
    assert server.engine.find("e/1") is None
    assert server.pull("e/1").json["hash"] == ""


def test_a_topic_that_takes_no_writes_is_told(stand: MakeStand) -> None:
    server = stand(told(topic="jobs", subject_param="id", path="e/{id}"), opened("doc", "jobs.x"))
    server.pushed("jobs.x", {})
    refused = server.push("e/x", {})
    assert refused.error == (503, "queue_unavailable")
    assert server.engine.find("e/x") is None


def test_there_may_be_no_more_topics(stand: MakeStand) -> None:
    server = stand(told(topic="jobs"), opened("other", "other"), options=Options(max_logs=1))
    assert server.push("events", {}).error == (503, "queue_unavailable")
    assert (server.engine.find("events"), server.engine.find("jobs")) == (None, None)
    server.pushed("other", {})
    assert server.push("events", {}).status == 429


def test_an_element_that_is_not_kept_is_nothing_but_its_event(stand: MakeStand) -> None:
    server = stand(told(topic="news", persist=False, include_body=True))
    answer = server.push("events", {"n": 1}).json
    assert server.records("news") == [
        {"collection": "events", "hash": answer["hash"], "timestamp": NOW, "body": {"n": 1}}
    ]
    assert server.engine.find("events") is None


def test_numbers_that_are_none_do_not_get_into_a_topic(stand: MakeStand) -> None:
    server = stand(told(topic="news", include_body=True))
    assert server.ask("POST", "/push/events", b'{"data":{"n":1e400,"m":[-1e999]}}').status == 200
    assert server.records("news")[0]["body"] == {"n": None, "m": [None]}
    assert server.pull("events").items[0]["data"] == {"n": None, "m": [None]}


@pytest.mark.parametrize("persist", [True, False])
def test_after_any_crash_there_is_an_event_for_every_element_and_none_without(tmp_path: Path, persist: bool) -> None:
    """The plug is pulled at every call to the disk."""
    for calls in count():
        disk = FaultDisk(tmp_path / f"{calls}")
        disk.crash_after(calls)
        acknowledged = 0
        ended = False
        with suppress(Crashed), Stand(disk, told(topic="news", persist=persist)) as server:
            for n in range(3):
                acknowledged += server.push("events", {"n": n}).status == 200
            ended = True
        check_survivors(disk.power_cut(), acknowledged, persist)
        if ended:
            assert acknowledged == 3
            return


def check_survivors(disk: FaultDisk, acknowledged: int, persist: bool) -> None:
    with Engine.open(disk, clock=ManualClock(NOW + 10), background=False) as engine:
        events, elements = engine.find("news"), engine.find("events")
        events_there = [] if events is None else list(events.read())
        elements_there = [] if elements is None else list(elements.read())
        assert len(events_there) >= acknowledged
        if persist:
            assert len(elements_there) == len(events_there)
            assert [json.loads(event.data)["timestamp"] for event in events_there] == [one.ts for one in elements_there]
