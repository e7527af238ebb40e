"""``strandline ping`` and ``strandline info``: whether a server answers, and how it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.connection import connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.options import ApiKey, AsJson, AsJsonLines, Url
from strandline.cli.output import counted, print_fields, print_json, print_line
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import show_age
from strandline.client.calls import ALWAYS, Request

if TYPE_CHECKING:
    from strandline.client import Client


class Health(msgspec.Struct):
    """The answer of ``GET /v0/health``."""

    status: str
    version: str
    uptime_ms: int
    reason: str = ""
    role: str = ""
    leader: str = ""
    failing: list[dict[str, Any]] = []


def ping_command(
    count: Annotated[int, typer.Option("--count", "-c", metavar="N", min=1, help="Number of requests.")] = 1,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0, help="Time between two requests.")
    ] = 1.0,
    as_json: AsJsonLines = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Check that a server answers, and how quickly.

    The time is that of a request on an open connection. With several URLs, the command checks each server and shows its
    role. It fails with exit code 4 if one does not answer. It needs no API key. `strandline doctor` finds out why a
    server does not work as expected.

    Example:
      strandline ping --count 5
      strandline ping --url http://a:4000,http://b:4000
    """
    from strandline.client import Unreachable

    with connect(url, api_key) as client:
        urls = [address.url for address in client.transport.servers.addresses]
    silent = []
    for each in urls:
        try:
            _ping(each, api_key, count, interval, as_json)
        except Unreachable as error:
            silent.append(str(error))
    if silent:
        raise CommandFailed("; ".join(silent), Exit.UNREACHABLE)


def _ping(url: str, api_key: str | None, count: int, interval: float, as_json: bool) -> None:
    with connect(url, api_key, patience=0.0) as client:
        # Opens the connection.
        health_of(client)
        for number in range(count):
            if number:
                time.sleep(interval)
            started = time.perf_counter()
            health = health_of(client)
            took = (time.perf_counter() - started) * 1000
            if as_json:
                row = {"url": client.url, "ms": round(took, 3), "status": health.status, "version": health.version}
                print_json(row | ({"role": health.role} if health.role else {}))
            else:
                role = f", {health.role}" if health.role else ""
                leader = f" (the leader is at {health.leader})" if health.leader else ""
                print_line(
                    f"{client.url} answered in {took:.1f} ms: {health.status}, version {health.version}{role}{leader}"
                )


def health_of(client: Client) -> Health:
    """Raises CommandFailed if the server is not Strandline."""
    body = client.call("GET", "/v0/health").body
    try:
        return msgspec.json.decode(body, type=Health)
    except msgspec.DecodeError as error:
        raise CommandFailed(
            f"the server answers, but not as Strandline does ({error}); check the port in the URL"
        ) from None


def metrics_of(client: Client) -> dict[str, Any]:
    """The figures of ``GET /v0/metrics``."""
    request = Request("GET", "/v0/metrics", headers=((b"accept", b"application/json"),), repeatable=ALWAYS)
    found: dict[str, Any] = msgspec.json.decode(client.transport.call(request).body)
    return found


def info_command(as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show the version, the health and the size of a server.

    Example:
      strandline info
    """
    with connect(url, api_key) as client:
        health, metrics = health_of(client), metrics_of(client)
    if as_json:
        print_json({"url": client.url, "health": health, "metrics": metrics})
        return
    print_fields(_fields(client.url, health, metrics))


def _fields(url: str, health: Health, metrics: dict[str, Any]) -> dict[str, Any]:
    sealing, pipeline, replica = metrics["sealing"], metrics["pipeline"], metrics.get("replica")
    lags = [one["lag"] for one in metrics["consumer_lag"]]
    return {
        "url": url,
        "version": health.version,
        "status": health.status,
        "reason": health.reason,
        "role": health.role,
        "failing": ", ".join(one["task"] for one in health.failing),
        "uptime": show_age(health.uptime_ms),
        "logs": f"{metrics['topics']:,}",
        "queues": f"{metrics['queue_topics']:,}",
        "routers": f"{metrics['routers']:,}",
        "records": f"{metrics['records_live']:,}",
        "size": decimal(metrics["bytes_live"]),
        "not sealed": f"{decimal(sealing['unsealed_bytes'])} of {decimal(sealing['budget_bytes'])}",
        "not in the replica": None if replica is None else show_lag(replica),
        "behind the leader": f"{metrics['follower']['lag_ms'] / 1000:.1f} s" if "follower" in metrics else None,
        "leased jobs": f"{metrics['queue_leases_in_flight']:,}",
        "live connections": f"{metrics['sse_connections']:,}",
        "largest consumer lag": f"{max(lags):,}" if lags else None,
        "indexing": f"{metrics['indexing']['waiting_logs']:,} logs wait"
        if metrics["indexing"]["waiting_logs"]
        else None,
        "damaged files": metrics["damaged_files"] or None,
        "pipeline": pipeline["state"],
        "not in the lake": counted(pipeline["lag_records"], "record") if pipeline["state"] != "off" else None,
    }


def show_lag(replica: dict[str, Any]) -> str:
    """What would be lost with the machine."""
    if not replica["waiting_bytes"]:
        return "nothing"
    records, size = counted(replica["waiting_records"], "record"), decimal(replica["waiting_bytes"])
    return f"{size} with {records} of logs below `replicated`, for {replica['lag_ms'] / 1000:.1f} s"
