from __future__ import annotations

import msgspec
from support.arrow_client import ArrowClient, table
from support.server_process import ServerProcess, StartServer
from support.streams_client import JSON, StreamsClient
from support.topics_client import Client

from strandline.schema.registry import Registry


def names(arrow: ArrowClient, **query: object) -> list[str]:
    return [log["name"] for log in arrow.call("GET", "logs", params=query)["logs"]]


def test_logs_of_every_protocol_are_listed_by_name_in_pages(
    arrow: ArrowClient, topics: Client, streams: StreamsClient, name: str
) -> None:
    topics.write(f"{name}.b", [1, 2])
    streams.create(f"{name}.a/x", "text/plain; charset=utf-8", "text")
    topics.queue(f"{name}.c", [1])
    assert names(arrow, prefix=f"{name}.") == [f"{name}.a/x", f"{name}.b", f"{name}.c"]
    page = arrow.call("GET", "logs", params={"prefix": f"{name}.", "limit": 2})
    assert ([log["name"] for log in page["logs"]], page["next"]) == ([f"{name}.a/x", f"{name}.b"], f"{name}.b")
    page = arrow.call("GET", "logs", params={"prefix": f"{name}.", "limit": 2, "after": page["next"]})
    assert ([log["name"] for log in page["logs"]], page["next"]) == ([f"{name}.c"], None)
    text, log = arrow.call("GET", "logs", params={"prefix": f"{name}.", "limit": 2})["logs"]
    assert text["media_type"] == "text/plain"
    assert (log["media_type"], log["head"], log["earliest"], log["floor"]) == ("application/json", 2, 1, 1)
    assert (log["registry"], log["base"]) == (None, None)
    assert log["last_ts"] == topics.diff(f"{name}.b")["records"][-1]["$ts"]
    arrow.refused("GET", "logs", 400, "invalid_request", params={"limit": 0})


def test_one_log_tells_what_stands_of_it(arrow: ArrowClient, topics: Client, name: str) -> None:
    topics.write(name, [{"data": number, "tag": "gone" if number in (2, 3, 6) else "there"} for number in range(8)])
    topics.delete(name, match="gone")
    shown = arrow.call("GET", f"logs/{name}")
    assert shown["standing"] == [[1, 2], [5, 6], [8, 8]]
    assert shown["directory"] == arrow.call("GET", "logs")["directory"]
    assert arrow.values(name) == [0, 1, 4, 5, 7]
    arrow.refused("GET", "logs/absent", 404, "log_not_found")


def test_a_registry_is_shown_as_it_is_kept(arrow: ArrowClient, streams: StreamsClient, name: str) -> None:
    streams.create(name)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10**30}}}
    assert streams.request("POST", f"{name}/_schema", {"schema": schema}, headers={"content-type": JSON}).is_success
    shown = msgspec.json.decode(arrow.request("GET", f"logs/{name}").content, type=dict[str, msgspec.Raw])
    assert b"1" + b"0" * 30 in bytes(shown["registry"])
    assert Registry.load(bytes(shown["registry"])).stored() == bytes(shown["registry"])


def test_a_key_shows_what_it_may_read_and_takes_what_it_may_write(start_server: StartServer) -> None:
    server = start_server(keys="root,reader:read,part:rw:a-,writer:write", metrics_flush_ms=0)
    try_the_servers_own_logs(server)
    try_scopes(server)


def try_the_servers_own_logs(server: ServerProcess) -> None:
    root = server.client("root")
    root.write("a-1", [1])
    root.write("b-1", [1])
    root.queue("jobs", [1])
    root.claim("jobs")
    root.call("DELETE", "/v0/topics/b-1")
    clients = {key: ArrowClient(server.url, key) for key in ("root", "reader", "part")}
    assert names(clients["root"]) == ["a-1", "jobs"]
    assert names(clients["part"]) == ["a-1"]
    everything = names(clients["root"], internal="true")
    assert "__erasures__" in everything
    assert any(name.startswith("__leases__") for name in everything)
    # Others may follow what is erased, but see nothing else of what the server keeps for itself.
    assert names(clients["reader"], internal="true") == ["__erasures__", "a-1", "jobs"]
    assert names(clients["part"], internal="true") == ["a-1"]
    assert clients["reader"].values("__erasures__")[-1]["log"] == "b-1"
    leases = next(name for name in everything if name.startswith("__leases__"))
    assert clients["root"].read(leases).num_rows
    clients["reader"].refused("GET", f"records/{leases}", 403, "forbidden")
    clients["part"].refused("GET", "records/__erasures__", 403, "forbidden")
    for client in clients.values():
        client.close()


def try_scopes(server: ServerProcess) -> None:
    clients = {key: ArrowClient(server.url, key) for key in ("root", "reader", "writer", "part", "wrong", "")}
    clients["writer"].append("a-2", table(1), create="true", status=201)
    clients["part"].append("a-2", table(2), writer="w", progress={"a": 1})
    clients["part"].not_appended("b-2", table(2), 403, "forbidden", create="true")
    clients["reader"].not_appended("a-2", table(2), 403, "forbidden")
    clients["reader"].refused("DELETE", "progress/a-2", 403, "forbidden", params={"writer": "w"})
    assert clients["reader"].values("a-2") == [1, 2]
    for path in ("logs", "logs/a-2", "records/a-2"):
        clients["writer"].refused("GET", path, 403, "forbidden")
        clients["wrong"].refused("GET", path, 401, "unauthorized")
        clients[""].refused("GET", path, 401, "unauthorized")
    for client in clients.values():
        client.close()
