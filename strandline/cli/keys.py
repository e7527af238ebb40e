"""``strandline keys``: the API keys of a running server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from strandline.cli.command_class import Command, TableCommand
from strandline.cli.connection import connect
from strandline.cli.exit_codes import naming
from strandline.cli.options import ApiKey, AsJson, Url
from strandline.cli.output import print_fields, print_json, print_line, print_table
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_duration, show_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.client import Client

app = typer.Typer(name="keys", no_args_is_help=True, help="List, add, rotate and revoke the API keys of a server.")

KeyId = Annotated[str, typer.Argument(metavar="ID", help="Id of the API key, as `strandline keys ls` shows it.")]


@app.command("ls", cls=TableCommand)
def list_command(as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """List the API keys that this key may manage, without their secrets.

    Example:
      strandline keys ls
    """
    with connect(url, api_key) as client:
        answer = _ask(client, "GET", "/v0/keys")
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            key["id"],
            key["name"],
            "+".join(key["scopes"]),
            "|".join(key["prefixes"]) or "any name",
            key["source"],
            show_time(key["expires_at"]) if key["expires_at"] else "",
        )
        for key in answer["keys"]
    ]
    print_table(("id", "name", "scopes", "prefixes", "source", "expires"), rows)


@app.command("add", cls=Command)
def add_command(
    scopes: Annotated[
        list[str], typer.Option("--scope", metavar="SCOPE", help="read, write, delete or admin. Repeat it for several.")
    ],
    prefixes: Annotated[
        list[str] | None,
        typer.Option(
            "--prefix", metavar="PREFIX", help="Only names that start with this prefix. Repeat it for several."
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="A text for people: who uses the key.")] = "",
    expires_in: Annotated[
        str | None,
        typer.Option("--expires-in", metavar="DURATION", help="The key stops working after this time, such as 30d."),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Add an API key, and print its secret. The server does not show the secret again.

    Example:
      strandline keys add --scope read --scope write --prefix orders --name shop
    """
    body: dict[str, Any] = {"scopes": scopes, "prefixes": prefixes or [], "name": name}
    if expires_in is not None:
        body["expires_in_ms"] = parse_duration(expires_in, "--expires-in")
    with connect(url, api_key) as client:
        answer = _ask(client, "POST", "/v0/keys", body)
    _print_new(answer, as_json)


@app.command("rotate", cls=Command)
def rotate_command(
    id: KeyId,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="DURATION", help="The old secret works this much longer, such as 1d. Default: 0s."
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Replace an API key by a new one with the same rights, and print its secret.

    Example:
      strandline keys rotate k3f0c2a9d41b7 --keep 1d
    """
    body = {} if keep is None else {"keep_ms": parse_duration(keep, "--keep")}
    with _key(url, api_key, id) as client:
        answer = _ask(client, "POST", f"/v0/keys/{quote(id, safe='')}/rotate", body)
    _print_new(answer, as_json)


@app.command("revoke", cls=Command)
def revoke_command(id: KeyId, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Make an API key invalid at once, and close what its clients have open.

    Example:
      strandline keys revoke k3f0c2a9d41b7
    """
    with _key(url, api_key, id) as client:
        answer = _ask(client, "DELETE", f"/v0/keys/{quote(id, safe='')}")
    if as_json:
        print_json(answer)
    else:
        print_line(f"revoked API key {id}")


@contextmanager
def _key(url: str, api_key: str | None, id: str) -> Iterator[Client]:
    with connect(url, api_key) as client, naming("API key", id):
        yield client


def _ask(client: Client, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(client.call(method, path, body).body)
    return answer


def _print_new(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    key, replaced = answer["key"], answer.get("replaced")
    print_fields(
        {
            "id": key["id"],
            "secret": answer["secret"],
            "scopes": "+".join(key["scopes"]),
            "prefixes": "|".join(key["prefixes"]) or "any name",
            "expires": show_time(key["expires_at"]) if key["expires_at"] else None,
            "replaces": f"{replaced['id']}, which ends at {show_time(replaced['expires_at'])}" if replaced else None,
        }
    )
