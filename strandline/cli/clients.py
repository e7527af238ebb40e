"""``strandline clients``: the open connections of a running server."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.command_class import Command, TableCommand
from strandline.cli.connection import connect
from strandline.cli.exit_codes import naming
from strandline.cli.options import ApiKey, AsJson, Url
from strandline.cli.output import counted, print_json, print_line, print_table, say
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import show_age

app = typer.Typer(name="clients", no_args_is_help=True, help="List the open connections of a server, and end one.")


@app.command("ls", cls=TableCommand)
def list_command(
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Only this kind: event_stream, websocket, worker, long_poll, download, request or idle.",
        ),
    ] = None,
    last: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="Maximum number of connections.")
    ] = 100,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List the open connections of a server: the API key, the request, and how far behind the client is.

    Those with the most unread data come first. The API key needs the scope admin.

    Example:
      strandline clients ls --kind event_stream
    """
    query = {"limit": last, **({} if kind is None else {"kind": kind})}
    with connect(url, api_key) as client:
        answer: dict[str, Any] = msgspec.json.decode(client.call("GET", "/v0/clients", query=query).body)
    if as_json:
        print_json(answer)
        return
    now = answer["now"]
    rows = [
        (
            str(one["id"]),
            one["forwarded_for"] or f"{one['peer']}:{one['port']}",
            one["api_key_name"] or one["api_key"] or "-",
            one["kind"],
            f"{one['method']} {one['route']}".strip() or "-",
            _logs(one),
            show_age(max(now - (one["since"] or one["connected_at"]), 0)),
            "-" if one["sent_bytes"] is None else decimal(one["sent_bytes"]),
            "-" if one["behind"] is None else f"{one['behind']:,}",
            decimal(one["unread_bytes"]) if one["unread_bytes"] else "-",
        )
        for one in answer["clients"]
    ]
    columns = ("id", "client", "api key", "kind", "request", "logs", "for", "sent", "behind", "unread")
    print_table(columns, rows, right=("id", "sent", "behind", "unread"))
    found = answer["counts"][kind] if kind else answer["total"]
    if found > len(rows):
        say(f"{counted(found, 'connection')}; the first {len(rows):,} are shown, see --limit")


@app.command("end", cls=Command)
def end_command(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the connection, as `strandline clients ls` shows it.")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """End one connection of a server. Most clients connect again; to keep one out, revoke its API key.

    Example:
      strandline clients end 17
    """
    with connect(url, api_key) as client, naming("connection", id):
        answer: dict[str, Any] = msgspec.json.decode(client.call("DELETE", f"/v0/clients/{id}").body)
    if as_json:
        print_json(answer)
    else:
        print_line(f"ended connection {id}")


def _logs(one: dict[str, Any]) -> str:
    names = [log["log"] for log in one["logs"]]
    more = one["log_count"] - 1
    return "-" if not names else f"{names[0]} and {more} more" if more else str(names[0])
