"""Published clients and a server that is killed between two of their requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.published_clients import Speaker
from support.server_process import ServerProcess

CONFIG = Path(__file__).with_name("collections.toml")


def test_a_cursor_goes_on_after_the_server_was_killed(client: Speaker, tmp_path: Path, alice: dict[str, Any]) -> None:
    server = ServerProcess(tmp_path / "data", config=CONFIG).start()
    try:
        where = {"url": server.url, "as_": alice, "key": "notes/n"}
        first = [client.tell("append", data={"n": number}, **where) for number in (1, 2)]
        cursor = client.tell("cursor", options={"verify_author": True}, **where)
        assert [element["data"]["n"] for element in client.tell("cursor_pull", cursor=cursor)] == [1, 2]
        first.append(client.tell("append", data={"n": 3}, **where))

        server.kill()
        where["url"] = server.start().url
        kept = client.tell("cursor_items", cursor=cursor)
        warm = client.tell("cursor", options={"verify_author": True, "initial_items": kept}, **where)
        assert [element["data"]["n"] for element in client.tell("cursor_pull", cursor=warm)] == [3]
        assert client.tell("append", data={"n": 4}, **where)["timestamp"] > first[-1]["timestamp"]
        assert [element["data"]["n"] for element in client.tell("cursor_pull", cursor=warm)] == [4]
    finally:
        server.end()
