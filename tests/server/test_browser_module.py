"""The browser module, as a server serves it and as a wheel has it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest
from support.document_tables import ROOT
from support.server_process import ServerProcess, StartServer

from strandline.cli.demo.declared_tables import SOURCE as PROJECT
from strandline.server.browser_module import ENTRY, SOURCE

FILES = sorted(path.name for path in SOURCE.iterdir() if path.is_file())
ELSEWHERE = {"origin": "https://shop.example"}


def ask(server: ServerProcess, name: str, headers: dict[str, str] | None = None, method: str = "GET") -> httpx.Response:
    return httpx.request(method, f"{server.url}/js/{name}", headers=headers or {}, trust_env=False, timeout=60)


@pytest.mark.both_lanes
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_pages_of_every_site_can_load_every_file(server: ServerProcess, name: str) -> None:
    answer = ask(server, name, ELSEWHERE)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert answer.content == (SOURCE / name).read_bytes()
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert answer.headers["cache-control"] == "no-cache"
    unchanged = ask(server, name, {**ELSEWHERE, "if-none-match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["access-control-allow-origin"] == "*"


def test_the_module_needs_no_key_and_gives_none_of_the_data(start_server: StartServer) -> None:
    server = start_server(keys="secret")
    assert ask(server, ENTRY, ELSEWHERE).status_code == 200
    assert ask(server, ENTRY, ELSEWHERE, "HEAD").headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("name", ["", "strandline", "../strandline.js", "..%2fpackage.json", "js/strandline.js"])
def test_there_is_nothing_but_the_module(server: ServerProcess, name: str) -> None:
    answer = ask(server, name)
    assert answer.status_code == 404
    if "js/" in name:
        assert "/js/strandline.js" in answer.json()["error"]["message"]


def test_everything_that_a_file_imports_is_served() -> None:
    for path in SOURCE.glob("*.js"):
        for name in re.findall(r'^(?:import|export) .* from "(.*)";$', path.read_text(), re.MULTILINE):
            assert (SOURCE / name).is_file() or (path.name, name) == ("react.js", "react"), f"{path.name}: {name}"


def test_a_wheel_has_the_module_and_the_project_of_the_demo(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            assert archive.read(f"strandline/server/js/{name}") == (SOURCE / name).read_bytes()
        files = [path for path in PROJECT.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        for path in files:
            name = path.relative_to(PROJECT).as_posix()
            assert archive.read(f"strandline/cli/demo/shop-pipeline/{name}") == path.read_bytes()
