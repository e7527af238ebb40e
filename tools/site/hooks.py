"""What mkdocs calls while it builds the site: puts the rendered references where pages have a comment for them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import render as render_command_line
from http_api import render as render_http_api

#: By the first word of the comment; further words are arguments: ``<!-- rendered: http-api topics -->``.
RENDERED: dict[str, Callable[..., str]] = {"command-line": render_command_line, "http-api": render_http_api}


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(r"<!-- rendered: (.*?) -->", _rendered, markdown)


def _rendered(comment: re.Match[str]) -> str:
    name, *arguments = comment[1].split()
    return RENDERED[name](*arguments)


#: What the theme brings and the server has no use for.
UNUSED = ("404.html", "sitemap.xml*", "assets/javascripts/lunr", "**/*.map")


def on_post_build(config: Any, **_: Any) -> None:
    for pattern in UNUSED:
        for path in list(Path(config.site_dir).glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
