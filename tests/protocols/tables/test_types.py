"""The types of the declared tables, as the server serves them."""

from __future__ import annotations

import httpx
import pytest
from support.command_line import Cli
from support.server_process import ServerProcess, StartServer
from support.tables_client import POLLS

from strandline.server.declarations import load
from strandline.tables.types import python_types, typescript_types

WRITTEN = {"ts": typescript_types, "py": python_types}


def ask(server: ServerProcess, language: str, key: str | None = None) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.get(f"{server.url}/tables/types.{language}", headers=headers, trust_env=False, timeout=60)


@pytest.mark.both_lanes
@pytest.mark.parametrize("language", WRITTEN)
def test_the_server_serves_the_types_of_its_tables(tables_server: ServerProcess, language: str) -> None:
    answer = ask(tables_server, language)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text == WRITTEN[language](load(str(POLLS)).tables)
    assert Cli(tables_server.url)("types", f"--{language}").stdout == answer.text


def test_types_are_for_those_who_may_list_the_tables(start_server: StartServer) -> None:
    server = start_server(declare=POLLS, keys="reader:read,writer:write")
    for key, code in ((None, "NOT_AUTHENTICATED"), ("wrong", "NOT_AUTHENTICATED")):
        assert ask(server, "ts", key).json()["error"]["code"] == code
    assert ask(server, "ts", "writer").text == ask(server, "ts", "reader").text
    cli = Cli(server.url)
    assert cli("types", "--py").exit_code == 5
    assert cli("types", "--py", "--api-key", "reader").stdout == ask(server, "py", "reader").text
