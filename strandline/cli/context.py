"""``strandline context``: named servers, so that commands need neither ``--url`` nor ``--api-key``."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.command_class import Command, TableCommand
from strandline.cli.connection import connect
from strandline.cli.contexts import NAME, NamedServer, complete_context, contexts_path, load_contexts, save_contexts
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.options import ApiKey, AsJson
from strandline.cli.output import print_json, print_line, print_table

ContextName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=complete_context)
]

app = typer.Typer(name="context", no_args_is_help=True, help="Name servers, and choose the one that commands talk to.")


@app.command("add", cls=Command)
def add_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new context.")],
    address: Annotated[
        str, typer.Argument(metavar="URL", help="URL of the server, or of it and its standbys, separated by commas.")
    ],
    api_key: ApiKey = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current context.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a context of this name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Name a server and its API key.

    They are kept in strandline/contexts.json in $XDG_CONFIG_HOME or ~/.config, which only you may read. With
    STRANDLINE_KEY instead of --api-key, the key does not appear in the history of your shell.

    Example:
      strandline context add production https://logs.example.com --use
    """
    if NAME.fullmatch(name) is None:
        raise typer.BadParameter(
            f"{name!r} is not a name of a context; expected up to 64 letters, digits and . _ -", param_hint="NAME"
        )
    connect(address, api_key).close()
    contexts = load_contexts()
    if name in contexts.servers and not replace:
        raise CommandFailed(f"context {name!r} already exists; add --replace to change it", Exit.CONFLICT)
    contexts.servers[name] = NamedServer(address, api_key or None)
    if use:
        contexts.current = name
    save_contexts(contexts)
    if as_json:
        print_json({"context": name, "url": address, "current": contexts.current == name})
    else:
        print_line(f"added context {name}" + ("" if contexts.current != name else ", which is the current one"))


@app.command("ls", cls=TableCommand)
def list_command(as_json: AsJson = False) -> None:
    """List the contexts. API keys are not printed.

    Example:
      strandline context ls
    """
    contexts = load_contexts()
    rows = [
        {"context": name, "url": server.url, "api_key": server.api_key is not None, "current": name == contexts.current}
        for name, server in sorted(contexts.servers.items())
    ]
    if as_json:
        print_json({"file": str(contexts_path()), "contexts": rows})
        return
    cells = [
        (str(row["context"]), str(row["url"]), "yes" if row["api_key"] else "", "*" if row["current"] else "")
        for row in rows
    ]
    print_table(("context", "url", "api key", "current"), cells)


@app.command("use", cls=Command)
def use_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=complete_context)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context: commands talk to the default URL.")] = False,
    as_json: AsJson = False,
) -> None:
    """Choose the context that commands use unless another server is given.

    --url, --context, STRANDLINE_URL and STRANDLINE_CONTEXT have priority over it.

    Example:
      strandline context use production
    """
    if none == (name is not None):
        raise typer.BadParameter("specify either a context or --none", param_hint="NAME")
    contexts = load_contexts()
    if name is not None:
        contexts.get(name)
    contexts.current = name
    save_contexts(contexts)
    if as_json:
        print_json({"current": name})
    else:
        print_line(
            "commands use no context" if name is None else f"commands use context {name}: {contexts.get(name).url}"
        )


@app.command("rm", cls=Command)
def remove_command(name: ContextName, as_json: AsJson = False) -> None:
    """Remove a context and its API key.

    Example:
      strandline context rm production
    """
    contexts = load_contexts()
    contexts.get(name)
    del contexts.servers[name]
    if contexts.current == name:
        contexts.current = None
    save_contexts(contexts)
    if as_json:
        print_json({"context": name, "removed": True})
    else:
        print_line(f"removed context {name}")
