"""What mkdocs calls while it builds the site: puts the rendered references where pages have a comment for them."""

from __future__ import annotations

import re
from collections.abc import Callable
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
