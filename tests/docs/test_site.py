"""The site that is built of docs/: every link leads somewhere, no page needs another host or an inline script, and its
search works under the policy that the server sends."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Route, sync_playwright
from support.document_tables import ROOT

from strandline.service.http import Head
from strandline.service.static_files import StaticFiles

#: Elements that make a browser load something. A link that a reader may follow is not one of them.
_LOADED = re.compile(r"<(?:script|img|source|iframe|object|embed|use|link)\b[^>]*?\s(?:src|href|data)=\"([^\"]*)\"")
_INLINE_SCRIPT = re.compile(r"<script(?![^>]*\ssrc=)(?![^>]*type=\"application/json\")[^>]*>")
_INLINE_STYLE = re.compile(r"<style|<[^>]+\sstyle=|<[^>]+\son\w+=")


def build(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory), *options],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    done = build(directory)
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_is_built(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").with_suffix("")
        page = site / name.parent / "index.html" if name.name == "index" else site / name / "index.html"
        assert "<article" in page.read_text(), name


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in _LOADED.findall(page.read_text()):
            assert "//" not in target, f"{page.relative_to(site)} loads {target}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet.name


def test_pages_obey_a_policy_without_inline_scripts_and_styles(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        assert not _INLINE_SCRIPT.findall(text), page.relative_to(site)
        assert not _INLINE_STYLE.findall(text), page.relative_to(site)


@pytest.mark.parametrize("link", ["nowhere.md", "glossary.md#nowhere", "/absolute/"])
def test_a_broken_link_stops_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Front\n\n[broken]({link})\n")
    (tmp_path / "docs/glossary.md").write_text("# Glossary\n")
    config = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0]
    config = config.replace("tools/site/", f"{ROOT}/tools/site/")
    (tmp_path / "mkdocs.yml").write_text(config)
    done = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0
    assert link in done.stderr


def test_a_reader_finds_a_page_by_its_words(site: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("chromium is not installed: apt-get install chromium", pytrace=False)
    files = StaticFiles(site)
    asked: list[str] = []
    said: list[str] = []

    def answer(route: Route) -> None:
        """As the server answers."""
        asked.append(route.request.url)
        path = urlsplit(route.request.url).path.removeprefix("/docs/")
        reply = files.reply(path if path in files else f"{path}index.html", Head("GET", path, "", {}))
        assert reply is not None, path
        headers = {name.decode(): value.decode() for name, value in reply.headers}
        route.fulfill(body=reply.body, headers={**headers, "content-type": reply.content_type.decode()})

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context()
        context.route("**/*", answer)
        context.on("console", lambda message: said.append(message.text))
        context.on("weberror", lambda error: said.append(str(error.error)))
        page = context.new_page()
        page.goto("http://127.0.0.1/docs/")
        page.get_by_placeholder("Search").fill("dead letters")
        found = page.locator(".md-search-result__link[href*='/queues/']").first
        found.wait_for(state="attached", timeout=60_000)
        found.evaluate("link => link.click()")
        page.wait_for_url("**/queues/**")
        browser.close()
    assert not said
    assert all(url.startswith("http://127.0.0.1/docs/") for url in asked)
