"""``strandline router``: what is written to one log goes on into another."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, complete_log, complete_router, connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.output import print_fields, print_json, print_line, print_table
from strandline.client import NotFound
from strandline.client.topic_types import RouterState

app = typer.Typer(name="router", no_args_is_help=True, help="Copy what is written to one log into another.")

Name = Annotated[str, typer.Argument(metavar="ROUTER", help="The router.", autocompletion=complete_router)]


@app.command("ls")
def list_command(
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only routers whose names begin so.")] = "",
    source: Annotated[str | None, typer.Option("--from", metavar="LOG", help="Only those from this log.")] = None,
    dest: Annotated[str | None, typer.Option("--to", metavar="LOG", help="Only those to this log.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List routers."""
    with connect(url, key) as client:
        routers = list(client.routers(prefix, source=source, dest=dest))
    if as_json:
        print_json({"routers": [{"router": one.router, "from": one.source, "to": one.dest} for one in routers]})
        return
    print_table(("router", "from", "to"), [(one.router, one.source, one.dest) for one in routers])


@app.command("show")
def show_command(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Show a router: where it leads, how much has gone through, how far it is behind."""
    with connect(url, key) as client:
        state = client.router(name).state()
    if as_json:
        print_json(_told(state))
        return
    print_fields(
        {
            "router": state.router,
            "from": state.source,
            "to": state.dest,
            "keys": _filter(state),
            "guarantee": state.guarantee,
            "forwarded": f"{state.forwarded_total or 0:,}",
            "lag": f"{state.lag or 0:,}",
            "cycles": "allowed" if state.allow_cycle else None,
        }
    )


@app.command("create")
def create_command(
    name: Annotated[str, typer.Argument(metavar="ROUTER", help="Its name.")],
    source: Annotated[
        str, typer.Option("--from", metavar="LOG", help="What is written here …", autocompletion=complete_log)
    ],
    dest: Annotated[str, typer.Option("--to", metavar="LOG", help="… goes here.", autocompletion=complete_log)],
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="TEXT", help="Only records with this key; TEXT* is a beginning.")
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Mark every copy with where it came from.")
    ] = False,
    allow_cycle: Annotated[bool, typer.Option("--allow-cycle", help="Records may go in circles.")] = False,
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not make the destination.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make a router: what is written to one log from now on is copied into another."""
    with connect(url, key) as client:
        router = client.router(name)
        try:
            router.state()
        except NotFound:
            pass
        else:
            raise CommandFailed(f"there is a router {name!r} already", Exit.CONFLICT)
        state = router.configure(
            source,
            dest,
            filter=keys,
            create_dest=not no_create,
            allow_cycle=allow_cycle,
            guarantee="exactly_once" if exactly_once else "at_least_once",
        )
    if as_json:
        print_json(_told(state))
    else:
        print_line(f"created router {name}: {state.source} → {state.dest}")


@app.command("delete")
def delete_command(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Delete a router. What it has copied stays."""
    with connect(url, key) as client:
        if not client.router(name).delete():
            raise CommandFailed(f"there is no router {name!r}", Exit.NOT_FOUND)
    if as_json:
        print_json({"router": name, "deleted": True})
    else:
        print_line(f"deleted router {name}")


def _filter(state: RouterState) -> str:
    return "" if state.filter is None else state.filter[2]


def _told(state: RouterState) -> dict[str, object]:
    return {
        "router": state.router,
        "from": state.source,
        "to": state.dest,
        "keys": _filter(state) or None,
        "guarantee": state.guarantee,
        "allow_cycle": state.allow_cycle,
        "forwarded": state.forwarded_total,
        "lag": state.lag,
    }
