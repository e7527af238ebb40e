from __future__ import annotations

import httpx
from support.command_line import Cli


def make(cli: Cli, name: str) -> None:
    with httpx.Client(base_url=cli.url, trust_env=False, timeout=30) as client:
        body = {"type": "pull-wake", "streams": [f"{name}/docs"], "wake_stream": f"{name}/wakes"}
        client.put(f"/v1/stream/__ds/subscriptions/{name}", json=body).raise_for_status()
        client.put(f"/v1/stream/{name}/docs", headers={"content-type": "application/json"}).raise_for_status()
        client.post(f"/v1/stream/{name}/docs", json=[1, 2]).raise_for_status()


def test_subscriptions_are_listed_shown_and_deleted(cli: Cli, name: str) -> None:
    make(cli, name)
    rows = cli.words("subscription", "ls", "--search", name)
    assert rows[0] == ["id", "matches", "wakes", "state", "lag", "last", "delivery", "failure"]
    assert rows[1][:5] == [name, f"{name}/docs", f"{name}/wakes", "waiting", "2"]
    assert cli.json("subscription", "ls", "--search", name)["total"] == 1
    lines = cli.lines("subscription", "show", name)
    fields = dict(line.split(maxsplit=1) for line in lines if not line.startswith("stream "))
    assert (fields["type"], fields["state"], fields["lag"]) == ("pull-wake", "waiting", "2")
    assert lines[-1] == f"stream {name}/docs: acknowledged 0 of 2, lag 2"
    assert cli.json("subscription", "show", name)["shown"][0]["lag"] == 2
    assert cli.lines("subscription", "delete", name) == [f"deleted subscription {name}"]
    message = f"strandline: subscription '{name}' not found; list the names with `strandline subscription ls`"
    assert cli.fails(3, "subscription", "show", name) == message
    assert cli.fails(3, "subscription", "delete", name) == message
