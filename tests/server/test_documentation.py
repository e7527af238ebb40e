"""The documentation that the server serves, the viewer of the API, and where a browser goes from the root."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gate_calls import ask_gate

from strandline.server.documentation import NOT_INSTALLED, VIEWER, Documentation
from strandline.server.gate import Gate, Status
from strandline.service.access import Keys
from strandline.service.http import Call, Head, Reply
from strandline.service.limits import Limits
from strandline.service.static_files import POLICY
from strandline.service.workers import Workers

BROWSER = {b"accept": b"text/html,application/xhtml+xml,*/*;q=0.8"}


class Site:
    def __init__(self, directory: Path, keys: str = "") -> None:
        self.workers = Workers()
        self._gate = Gate(
            Documentation(self.workers, directory).routes(),
            keys=Keys.parse(keys) if keys else None,
            limits=Limits(),
            status=Status(ready=True),
            workers=self.workers,
            max_body_bytes=1 << 20,
        )

    def ask(self, path: str, headers: dict[bytes, bytes] | None = None, method: str = "GET") -> Reply:
        async def asked() -> Reply:
            head = Head(method, path, "", {b"host": b"localhost", **(headers or {})})
            answer = await ask_gate(self._gate, Call(head, b"", 0.0))
            assert isinstance(answer, Reply)
            return answer

        return asyncio.run(asked())

    def location(self, path: str) -> tuple[int, bytes]:
        reply = self.ask(path)
        return reply.status, dict(reply.headers)[b"location"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "site"
    (directory / "reference/topics").mkdir(parents=True)
    (directory / "index.html").write_text("<title>front</title>")
    (directory / "reference/topics/index.html").write_text("<title>topics</title>")
    (directory / "style.css").write_text("a { color: red }")
    (tmp_path / "secret.html").write_text("secret")
    return directory


@pytest.fixture
def site(directory: Path) -> Iterator[Site]:
    site = Site(directory)
    yield site
    site.workers.close()


def test_pages_are_served_with_a_policy(site: Site) -> None:
    for path, title in (("/docs/", b"front"), ("/docs/reference/topics/", b"topics")):
        reply = site.ask(path)
        assert (reply.status, reply.body) == (200, b"<title>%s</title>" % title)
        assert reply.content_type == b"text/html; charset=utf-8"
        assert dict(reply.headers)[b"content-security-policy"] == POLICY
    assert site.ask("/docs/style.css").content_type == b"text/css; charset=utf-8"


def test_a_page_is_behind_its_slash(site: Site) -> None:
    assert site.location("/docs") == (308, b"docs/")
    assert site.location("/docs/reference/topics") == (308, b"topics/")
    assert site.location("/docs/api") == (308, b"api/")


@pytest.mark.parametrize("path", ["nothing", "reference/", "../secret.html", "..%2Fsecret.html", "%2Fetc%2Fpasswd"])
def test_there_is_nothing_but_the_pages(site: Site, path: str) -> None:
    reply = site.ask(f"/docs/{path}")
    assert reply.status == 404
    assert b"the documentation has no page" in reply.body


def test_a_server_without_the_site_says_how_to_get_it(tmp_path: Path) -> None:
    site = Site(tmp_path / "missing")
    for path in ("/docs", "/docs/", "/docs/reference/topics/"):
        reply = site.ask(path)
        assert reply.status == 404
        assert NOT_INSTALLED.encode() in reply.body
    assert site.ask("/docs/api/").status == 200
    site.workers.close()


def test_pages_need_no_key(directory: Path) -> None:
    site = Site(directory, "secret")
    assert site.ask("/docs/").status == 200
    assert site.ask("/docs/api/").status == 200
    assert site.ask("/", BROWSER).status == 307
    site.workers.close()


def test_a_browser_goes_from_the_root_to_the_console(site: Site) -> None:
    reply = site.ask("/", BROWSER)
    assert (reply.status, dict(reply.headers)[b"location"]) == (307, b"console/")


def test_a_program_finds_nothing_at_the_root(directory: Path) -> None:
    site = Site(directory, "secret")
    assert site.ask("/", {b"accept": b"*/*"}).status == 401
    reply = site.ask("/", {b"authorization": b"Bearer secret"})
    assert (reply.status, reply.body) == (404, b'{"error":{"code":"not_found","message":"nothing exists at /"}}')
    site.workers.close()


def test_the_viewer_has_every_file_that_it_loads(site: Site) -> None:
    page = site.ask("/docs/api/").body.decode()
    loaded = re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=\"([^\"]+)\"", page)
    assert len(loaded) == 6
    for file in loaded:
        assert site.ask(f"/docs/api/{file}").status == 200, file
    assert site.ask("/docs/api/nothing.js").status == 404
    assert (VIEWER / "swagger-ui/LICENSE").exists()
