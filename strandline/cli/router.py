"""``strandline router``: routers copy the records of one log to another."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.command_class import Command, TableCommand
from strandline.cli.connection import complete_log, connect
from strandline.cli.exit_codes import CommandFailed, Exit, naming, not_found
from strandline.cli.options import ApiKey, AsJson, RouterName, Url
from strandline.cli.output import print_fields, print_json, print_line, print_table
from strandline.cli.server_choice import DEFAULT_URL
from strandline.client.errors import NotFound
from strandline.client.topic_types import RouterState

app = typer.Typer(name="router", no_args_is_help=True, help="Copy new records of one log to another log.")


@app.command("ls", cls=TableCommand)
def list_command(
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PREFIX", help="Only routers whose name starts with this prefix.")
    ] = "",
    source: Annotated[
        str | None, typer.Option("--from", metavar="LOG", help="Only routers that copy from this log.")
    ] = None,
    dest: Annotated[str | None, typer.Option("--to", metavar="LOG", help="Only routers that copy to this log.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List the routers of a server.

    Example:
      strandline router ls --from orders
    """
    with connect(url, api_key) as client:
        routers = list(client.routers(prefix, source=source, dest=dest))
    if as_json:
        print_json({"routers": [_document(one) for one in routers]})
        return
    rows = [(one.router, one.source, one.dest, _filter(one)) for one in routers]
    print_table(("router", "from", "to", "filter"), rows)


@app.command("show", cls=TableCommand)
def show_command(name: RouterName, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show the configuration, progress and lag of a router.

    Example:
      strandline router show orders-of-ann
    """
    with connect(url, api_key) as client, naming("router", name):
        state = client.router(name).state()
    if as_json:
        print_json(_document(state))
        return
    print_fields(
        {
            "router": state.router,
            "from": state.source,
            "to": state.dest,
            "filter": _filter(state),
            "guarantee": state.guarantee,
            "forwarded": f"{state.forwarded_total or 0:,}",
            "lag": f"{state.lag or 0:,}",
            "cycles": "allowed" if state.allow_cycle else None,
        }
    )


@app.command("create", cls=Command)
def create_command(
    name: Annotated[str, typer.Argument(metavar="ROUTER", help="Name of the new router.")],
    source: Annotated[
        str, typer.Option("--from", metavar="LOG", help="Log to copy from.", autocompletion=complete_log)
    ],
    dest: Annotated[str, typer.Option("--to", metavar="LOG", help="Log to copy to.", autocompletion=complete_log)],
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="KEY", help="Only records with this key; KEY* matches a prefix. Default: all records."
        ),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Add the source log and sequence number to the meta of every copy.")
    ] = False,
    allow_cycle: Annotated[
        bool, typer.Option("--allow-cycle", help="Allow routers that lead back to the source log.")
    ] = False,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Fail if the destination does not exist, instead of creating it.")
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Create a router: it copies every new record of one log to another log.

    Records that are already in the source log are not copied.

    Example:
      strandline router create orders-of-ann --from orders --to ann --filter 'ann*'
    """
    with connect(url, api_key) as client:
        router = client.router(name)
        try:
            router.state()
        except NotFound:
            pass
        else:
            raise CommandFailed(
                f"router {name!r} already exists; choose another name or delete the router first", Exit.CONFLICT
            )
        state = router.configure(
            source,
            dest,
            filter=filter,
            create_dest=not no_create,
            allow_cycle=allow_cycle,
            guarantee="exactly_once" if exactly_once else "at_least_once",
        )
    if as_json:
        print_json(_document(state))
    else:
        print_line(f"created router {name}: {state.source} → {state.dest}")


@app.command("delete", cls=Command)
def delete_command(name: RouterName, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Delete a router. The records it has copied remain.

    Example:
      strandline router delete orders-of-ann
    """
    with connect(url, api_key) as client:
        if not client.router(name).delete():
            raise not_found("router", name)
    if as_json:
        print_json({"router": name, "deleted": True})
    else:
        print_line(f"deleted router {name}")


def _filter(state: RouterState) -> str:
    return "" if state.filter is None else state.filter[2]


def _document(state: RouterState) -> dict[str, object]:
    """What the server sends: a list has no lags, and the answer to a new router no counters."""
    document = {
        "router": state.router,
        "from": state.source,
        "to": state.dest,
        "filter": _filter(state) or None,
        "guarantee": state.guarantee,
        "allow_cycle": state.allow_cycle,
    }
    counters = {"forwarded": state.forwarded_total, "lag": state.lag}
    return {**document, **{name: number for name, number in counters.items() if number is not None}}
