"""``strandline audit``: the administrative changes that a server has recorded."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from strandline.cli.connection import connect
from strandline.cli.options import ApiKey, AsJson, Url
from strandline.cli.output import print_json, print_table
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import show_time


def audit_command(
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", min=1, max=1000, help="The last N entries.")] = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Show who changed the server and its logs: the last entries of the audit log, oldest first.

    Example:
      strandline audit -n 50
    """
    with connect(url, api_key) as client:
        answer: dict[str, Any] = msgspec.json.decode(client.call("GET", "/v0/audit", query={"limit": last}).body)
    entries = answer["entries"][::-1]
    if as_json:
        print_json({"entries": entries})
        return
    rows = [
        (
            show_time(one["time"]),
            one.get("api_key") or "-",
            one.get("forwarded_for") or one.get("peer") or "-",
            f"{one['method']} {one['path']}",
            one["outcome"],
            str(one["status"]),
        )
        for one in entries
    ]
    print_table(("time", "api key", "client", "request", "outcome", "status"), rows, right=("status",))
