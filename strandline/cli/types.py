"""``strandline types``: the types of declared tables, for programs in TypeScript and Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.connection import connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.options import ApiKey, Url
from strandline.cli.output import put
from strandline.cli.server_choice import DEFAULT_URL


def types_command(
    ts: Annotated[bool, typer.Option("--ts", help="Write TypeScript.")] = False,
    py: Annotated[bool, typer.Option("--py", help="Write Python.")] = False,
    declare: Annotated[
        str | None,
        typer.Option(
            "--declare",
            metavar="FILE",
            help="Python file or module with the declarations. Default: the tables of the server at --url.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file. Default: print.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Write the types of the declared tables, for TypeScript or for Python.

    Each table has a type for reading (VoteRow, and its payload VotePayload) and one for writing (VoteInput). In
    TypeScript, `Tables` has the types of all tables, for `connect` of the browser module.

    Example:
      strandline types --ts --declare polls.py -o page/tables.d.ts
      strandline types --py --url http://127.0.0.1:4000
    """
    if ts == py:
        raise typer.BadParameter("expected either --ts or --py", param_hint="--ts / --py")
    text = _asked(url, api_key, ts) if declare is None else _declared(declare, ts)
    if output is None:
        put(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error.strerror}", Exit.FAILED) from None


def _asked(url: str, api_key: str | None, ts: bool) -> str:
    with connect(url, api_key) as client:
        return client.call("GET", f"/tables/types.{'ts' if ts else 'py'}").body.decode()


def _declared(source: str, ts: bool) -> str:
    from strandline.server.declarations import load
    from strandline.server.settings import BadSettings
    from strandline.tables.types import python_types, typescript_types

    try:
        tables = load(source).tables
    except BadSettings as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    return (typescript_types if ts else python_types)(tables)
