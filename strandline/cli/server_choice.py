"""Which server a command talks to.

In this order: the options after the command, the options before it (``strandline --url URL log ls``), the environment,
the current context, the default. A URL and an API key of a context belong together: a key of a context is never sent to
another URL.
"""

from __future__ import annotations

import os
from typing import Any

import typer

DEFAULT_URL = "http://127.0.0.1:4000"
URL_VARIABLE = "STRANDLINE_URL"
KEY_VARIABLE = "STRANDLINE_KEY"
CONTEXT_VARIABLE = "STRANDLINE_CONTEXT"


def choose_server(ctx: Any) -> None:
    """Fill in ``url`` and ``api_key`` of a command. Raises UsageError for options before a command that does not talk
    to a server, and CommandFailed for a context that does not exist."""
    before = ctx.find_root().params
    names = {param.name for param in ctx.command.params}
    for name, option in (("url", "--url"), ("api_key", "--api-key"), ("context", "--context")):
        if before.get(name) is not None and ("url" if name == "context" else name) not in names:
            raise typer.BadParameter(f"`{ctx.info_name}` does not talk to a server", param_hint=option)
    if "url" not in names:
        return
    for name in ("url", "api_key"):
        if before.get(name) is not None and _source(ctx, name) != "COMMANDLINE":
            ctx.params[name] = before[name]
    if _source(ctx, "url") == "COMMANDLINE" or before.get("url") is not None:
        return
    named = before.get("context")
    if named is None and _source(ctx, "url") == "ENVIRONMENT":
        return
    # Commands without a default URL read a directory unless a server is named.
    named = named or os.environ.get(CONTEXT_VARIABLE) or None
    if named is None and ctx.params["url"] is None:
        return
    found = chosen_context(named)
    if found is None:
        return
    ctx.params["url"] = found[0]
    if before.get("api_key") is None and _source(ctx, "api_key") != "COMMANDLINE":
        ctx.params["api_key"] = found[1]


def environment_server() -> tuple[str, str | None]:
    """The URL and the API key without any option. Raises CommandFailed if a context cannot be read."""
    url, key = os.environ.get(URL_VARIABLE), os.environ.get(KEY_VARIABLE)
    found = None if url else chosen_context(os.environ.get(CONTEXT_VARIABLE) or None)
    return (url or DEFAULT_URL, key) if found is None else found


def chosen_context(name: str | None) -> tuple[str, str | None] | None:
    """The URL and the API key of a context: of this name, or the current one; None if there is no current one."""
    from strandline.cli.contexts import contexts_path, load_contexts

    if name is None and not contexts_path().exists():
        return None
    contexts = load_contexts()
    chosen = contexts.current if name is None else name
    if chosen is None:
        return None
    server = contexts.get(chosen)
    return server.url, server.api_key


def _source(ctx: Any, name: str) -> str:
    """``COMMANDLINE``, ``ENVIRONMENT`` or ``DEFAULT``."""
    source = ctx.get_parameter_source(name)
    return "DEFAULT" if source is None else str(source.name)
