from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.arrow_client import ArrowClient, table
from support.server_process import StartServer
from support.topics_client import Client


def progress(arrow: ArrowClient, name: str, writer: str = "w") -> object:
    return arrow.call("GET", f"logs/{name}", params={"writer": writer})["progress"]


def test_progress_is_noted_with_the_records_and_held_against_what_it_was(
    arrow: ArrowClient, topics: Client, name: str
) -> None:
    topics.put(name)
    assert progress(arrow, name) is None
    answer = arrow.append(name, table(1), writer="w", progress={"a": 1}, before="absent")
    assert answer["progress"] == {"a": 1}
    arrow.append(name, table(2), writer="w", progress={"a": 2, "ü": [1.5, None]}, before={"a": 1})
    assert progress(arrow, name) == {"a": 2, "ü": [1.5, None]}
    # The same once more, as after an answer that was lost.
    error = arrow.not_appended(name, table(2), 409, "progress_conflict", writer="w", progress={"a": 3}, before={"a": 1})
    assert error["detail"] == {"writer": "w", "progress": {"a": 2, "ü": [1.5, None]}}
    arrow.not_appended(name, table(2), 409, "progress_conflict", writer="w", progress={"a": 3})
    assert arrow.values(name) == [1, 2]
    # Members may come in another order, and another writer is another one.
    arrow.append(name, table(3), writer="w", progress={"a": 3}, before={"ü": [1.5, None], "a": 2})
    arrow.append(name, table(4), writer="other", progress={"a": 1})
    assert (progress(arrow, name), progress(arrow, name, "other")) == ({"a": 3}, {"a": 1})
    assert "progress" not in arrow.call("GET", f"logs/{name}")


def test_one_true_and_one_point_nought_are_three_things(arrow: ArrowClient, name: str) -> None:
    arrow.append(name, table(), create="true", writer="w", progress={"a": 1}, status=201)
    for wrong in (True, 1.0, "1"):
        arrow.not_appended(name, table(1), 409, "progress_conflict", writer="w", progress={"a": 2}, before={"a": wrong})


def test_progress_can_be_noted_without_records(arrow: ArrowClient, name: str) -> None:
    answer = arrow.append(name, table(), create="true", writer="w", progress={"a": 1}, status=201)
    assert (answer["first"], answer["last"], answer["count"]) == (1, 0, 0)
    assert arrow.append(name, table(), writer="w", progress={"a": 2}, before={"a": 1})["progress"] == {"a": 2}
    assert arrow.append(name, table())["count"] == 0
    assert progress(arrow, name) == {"a": 2}


def test_of_many_at_once_one_gets_there(arrow: ArrowClient, name: str) -> None:
    arrow.append(name, table(), create="true", writer="w", progress={"a": 0}, status=201)

    def attempt(number: int) -> int:
        client = ArrowClient(arrow.url)
        sent = client.sending(table(number), writer="w", progress={"a": number + 1}, before={"a": 0})
        try:
            return client.request("POST", f"records/{name}", **sent).status_code
        finally:
            client.close()

    with ThreadPoolExecutor(8) as threads:
        statuses = sorted(threads.map(attempt, range(8)))
    assert statuses == [200] + [409] * 7
    (kept,) = arrow.values(name)
    assert progress(arrow, name) == {"a": kept + 1}


def test_progress_can_be_forgotten(arrow: ArrowClient, name: str) -> None:
    arrow.append(name, table(), create="true", writer="w", progress={"a": 1}, status=201)
    assert arrow.call("DELETE", f"progress/{name}", params={"writer": "w"}) == {"forgotten": True}
    assert arrow.call("DELETE", f"progress/{name}", params={"writer": "w"}) == {"forgotten": False}
    assert progress(arrow, name) is None
    arrow.append(name, table(1), writer="w", progress={"a": 1})
    arrow.refused("DELETE", f"progress/{name}", 400, "invalid_request")
    arrow.refused("DELETE", "progress/absent", 404, "log_not_found", params={"writer": "w"})


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, {"writer": "w"}),
        ({"strandline-progress": "{}"}, {}),
        ({"strandline-progress": "[]"}, {"writer": "w"}),
        ({"strandline-progress": '{"a":'}, {"writer": "w"}),
        ({"strandline-progress": '{"a":1}', "strandline-progress-before": "null"}, {"writer": "w"}),
        ({"strandline-progress": '{"a":1}', "strandline-progress-before": '{"a":1}'}, {"writer": "w"}),
        ({"strandline-progress-before": '{"a":1}'}, {}),
        ({"strandline-progress": '{"a":1}'}, {"writer": ""}),
        ({"strandline-progress": '{"a":1}'}, {"writer": "w" * 56}),
        ({"strandline-progress": '{"a":1}'}, {"writer": "a\nb"}),
    ],
)
def test_what_makes_no_sense_is_refused(
    arrow: ArrowClient, name: str, headers: dict[str, str], query: dict[str, str]
) -> None:
    sent = arrow.sending(table(1), create="true")
    sent["headers"] |= headers
    sent["params"] |= query
    arrow.refused("POST", f"records/{name}", 400, "invalid_request", **sent)
    arrow.refused("GET", f"logs/{name}", 404, "log_not_found")


def test_records_and_progress_survive_a_kill_together(start_server: StartServer) -> None:
    server = start_server()
    client = ArrowClient(server.url)
    client.append("log", table(1, 2), create="true", writer="w", progress={"a": 2}, status=201)
    client.append("log", table(3), writer="w", progress={"a": 3}, before={"a": 2})
    directory = client.call("GET", "logs")["directory"]
    client.close()
    server.kill()
    server.start()
    client = ArrowClient(server.url)
    assert client.values("log") == [1, 2, 3]
    assert progress(client, "log") == {"a": 3}
    assert client.call("GET", "logs")["directory"] == directory
    client.close()
