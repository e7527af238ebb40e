"""``strandline subscription``: the webhooks and the wakes of the streams protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from strandline.cli.command_class import Command, TableCommand
from strandline.cli.connection import connect
from strandline.cli.exit_codes import naming
from strandline.cli.options import ApiKey, AsJson, Url
from strandline.cli.output import counted, print_fields, print_json, print_line, print_table, say
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import show_time

if TYPE_CHECKING:
    from strandline.client import Client

LIMIT = 500

app = typer.Typer(
    name="subscription", no_args_is_help=True, help="List the subscriptions to streams: webhooks and wakes of workers."
)

SubscriptionId = Annotated[str, typer.Argument(metavar="ID", help="Id of the subscription.")]


@app.command("ls", cls=TableCommand)
def list_command(
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only those whose id, streams or target contain this text.")
    ] = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List subscriptions with their state, lag and last failure; those that fail come first.

    Example:
      strandline subscription ls
    """
    with connect(url, api_key) as client:
        answer = _ask(client, "/console/api/subscriptions", {"search": search, "limit": LIMIT})
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            one["id"],
            " ".join(filter(None, [one["pattern"], *one["named"][:3]])),
            one["target"],
            one["state"],
            _lag(one),
            show_time(one["delivered_at"]),
            one["last_failure"]["why"] if one["failures"] else "",
        )
        for one in answer["subscriptions"]
    ]
    print_table(("id", "matches", "wakes", "state", "lag", "last delivery", "failure"), rows, right=("lag",))
    if answer["total"] > len(rows):
        say(f"{counted(answer['total'], 'subscription')}; the first {len(rows):,} are shown, see --search")


@app.command("show", cls=TableCommand)
def show_command(id: SubscriptionId, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show a subscription and the position in each of its streams.

    Example:
      strandline subscription show mailer
    """
    with connect(url, api_key) as client, naming("subscription", id):
        found = _ask(client, f"/console/api/subscription/{quote(id, safe='')}")
    if as_json:
        print_json(found)
        return
    failure = found["last_failure"]
    print_fields(
        {
            "id": found["id"],
            "type": found["type"],
            "pattern": found["pattern"],
            "wakes": found["target"],
            "description": found["description"],
            "state": found["state"],
            "worker": found["holder"] or None,
            "lag": _lag(found),
            "last delivery": show_time(found["delivered_at"]) if found["delivered_at"] else None,
            "failures in a row": found["failures"] or None,
            "last failure": f"{show_time(failure['at'])}: {failure['why']}" if failure else None,
            "next attempt": show_time(found["retry_at"]) if found["retry_at"] else None,
        }
    )
    for one in found["shown"]:
        print_line(f"stream {one['name']}: acknowledged {one['acked']:,} of {one['head']:,}, lag {one['lag']:,}")
    if found["logs"] > len(found["shown"]):
        say(f"{counted(found['logs'], 'stream')}; the first {len(found['shown']):,} are shown")


@app.command("delete", cls=Command)
def delete_command(id: SubscriptionId, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Delete a subscription with its positions. The streams and their records remain.

    Example:
      strandline subscription delete mailer
    """
    name = quote(id, safe="")
    with connect(url, api_key) as client, naming("subscription", id):
        # Deleting a subscription that does not exist succeeds, which would hide a wrong id.
        _ask(client, f"/console/api/subscription/{name}")
        client.call("DELETE", f"/v1/stream/__ds/subscriptions/{name}")
    if as_json:
        print_json({"subscription": id, "deleted": True})
    else:
        print_line(f"deleted subscription {id}")


def _ask(client: Client, path: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(client.call("GET", path, query=query or {}).body)
    return answer


def _lag(one: dict[str, Any]) -> str:
    return f"{one['lag']:,}{'+' if one['lag_is_least'] else ''}"
