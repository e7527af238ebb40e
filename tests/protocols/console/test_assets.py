"""The files of the page."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.console_in_process import ConsoleStand

from strandline.protocols.console.assets import DIRECTORY, INDEX, Assets
from strandline.service.http import Call, Head
from strandline.service.static_files import MEDIA_TYPES

FILES = sorted(path.relative_to(DIRECTORY).as_posix() for path in DIRECTORY.rglob("*") if path.is_file())


def test_every_file_is_served_with_its_type_and_a_policy(stand: ConsoleStand) -> None:
    assert FILES
    for file in FILES:
        answered = stand.ask("GET", f"/console/{file}")
        assert answered.status == 200, file
        assert answered.body == (DIRECTORY / file).read_bytes()
        suffix = Path(file).suffix
        assert answered.content_type == MEDIA_TYPES.get(suffix, b"text/plain; charset=utf-8").decode()
        policy = answered.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answered.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith((".js", ".html"))])
def test_data_never_becomes_markup_or_code(file: str) -> None:
    text = (DIRECTORY / file).read_text()
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "setHTMLUnsafe", "srcdoc", "eval("):
        assert sink not in text, sink
    for sink in ("new Function", "javascript:", "createContextualFragment", "DOMParser"):
        assert sink not in text, sink


def test_a_file_that_one_has_is_not_sent_again(stand: ConsoleStand) -> None:
    path = f"/console/{FILES[0]}"
    plain, zipped = stand.ask("GET", path), stand.ask("GET", path, accept_encoding="br, gzip")
    tags = [each.headers["etag"] for each in (plain, zipped)]
    assert len(set(tags)) == 2, "a strong tag is of the very bytes"
    assert all(tag.startswith('"') for tag in tags)
    assert gzip.decompress(zipped.body) == plain.body
    for tag, encoding in zip(tags, ("identity", "gzip"), strict=True):
        again = stand.ask("GET", path, accept_encoding=encoding, if_none_match=f'"other", {tag}')
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert stand.ask("GET", path, if_none_match='"other"').status == 200


def test_the_console_is_behind_its_slash(stand: ConsoleStand) -> None:
    moved = stand.ask("GET", "/console")
    assert (moved.status, moved.headers["location"]) == (308, "console/")


def test_the_page_is_served_where_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text("<title>console</title>")
    head = Head("GET", "/console/", "", {})
    head.params = {"path": ""}
    assert Assets(tmp_path).get(Call(head, b"", 0.0)).body == b"<title>console</title>"


@pytest.mark.parametrize(
    "path", ["nothing.js", "..%2Fface.py", "../face.py", "%2Fetc%2Fpasswd", "api/nothing", "vendor"]
)
def test_there_is_nothing_but_the_files(stand: ConsoleStand, path: str) -> None:
    assert stand.ask("GET", f"/console/{path}").error == (404, "not_found")


def test_the_page_needs_no_key(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "secret") as stand:
        assert stand.ask("GET", f"/console/{FILES[0]}").status == 200
        assert stand.ask("GET", "/console").status == 308
        assert stand.refused("/logs") == (401, "unauthorized")
