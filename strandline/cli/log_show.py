"""``strandline log show``: everything that the server knows of one log."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.completion import complete_log
from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.output import print_fields, print_json, print_line, print_table
from strandline.cli.times import show_length, show_time
from strandline.client import Client, Conflict, NotFound
from strandline.client.calls import segment
from strandline.client.topic_types import RouterState, TopicConfig, TopicState


class LogAnswer(msgspec.Struct, kw_only=True):
    """``state`` is None of a log that is not JSON: the topics protocol does not show it."""

    log: str
    state: TopicState | None
    stream: dict[str, Any]
    profile: dict[str, Any]
    schema: dict[str, Any]
    info: dict[str, Any]
    routers: list[RouterState]


def show_command(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log.", autocompletion=complete_log)],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show everything about a log: what it holds, how it is configured, who reads it, where its records go."""
    with connect(url, key) as client:
        answer = ask(client, log)
    if as_json:
        print_json(answer)
        return
    print_fields(_fields(answer))
    if answer.state is not None and answer.state.consumers:
        print_line("")
        rows = [
            (name, f"{each.seq:,}", f"{each.lag:,}", show_time(each.committed_ts))
            for name, each in answer.state.consumers.items()
        ]
        print_table(("consumer", "seq", "lag", "committed"), rows, right=("seq", "lag"))
    if answer.routers:
        print_line("")
        print_table(("router", "from", "to"), [(one.router, one.source, one.dest) for one in answer.routers])


def ask(client: Client, log: str) -> LogAnswer:
    """Raises CommandFailed if there is no such log."""
    try:
        details = client.stream(log).details()
    except NotFound:
        raise CommandFailed(f"there is no log {log!r}", Exit.NOT_FOUND) from None
    try:
        state = client.topic(log).state(touch=False)
    except Conflict as error:
        if error.code != "not_json":
            raise
        state = None
    info = msgspec.json.decode(client.call("GET", f"/arrow/logs/{segment(log)}").body)
    routers = {one.router: one for end in ("source", "dest") for one in client.routers(**{end: log})}
    return LogAnswer(
        log=log,
        state=state,
        stream=details["stream"],
        profile=details["profile"]["profile"],
        schema=details["schema"],
        info={name: info[name] for name in ("epoch", "base", "ephemeral", "gaps", "floor", "directory")},
        routers=list(routers.values()),
    )


def _fields(answer: LogAnswer) -> dict[str, Any]:
    stream, info, state = answer.stream, answer.info, answer.state
    fields: dict[str, Any] = {
        "log": answer.log,
        "type": "log" if state is None else state.type,
        "content type": stream["content_type"],
        "records": None if state is None else f"{state.count:,}",
        "size": decimal(int(stream["total_size_bytes"]) if state is None else state.bytes),
        "seqs": None if state is None or not state.count else f"{state.earliest_seq:,} to {state.head_seq:,}",
        "head": f"{int(stream['next_offset']):,}" if state is None else None,
        "created": stream["created_at"],
        "last write": stream["last_append_at"],
        "expires": stream["expires_at"],
        "closed": "yes" if stream["closed"] else None,
        "forked from": None
        if info["base"] is None
        else f"epoch {info['base']['epoch']} up to {info['base']['through']}",
        "lost": ", ".join(f"{first} to {last}" for first, last in info["gaps"]),
        "profile": answer.profile["kind"] if answer.profile["kind"] != "generic" else None,
        "schema version": answer.schema.get("currentVersion") or None,
        "search fields": ", ".join(answer.schema.get("search", {}).get("fields", {})),
        "rollups": ", ".join(answer.schema.get("search", {}).get("rollups", {})),
        "segments": stream["segment_count"] or None,
    }
    if state is not None:
        fields |= _configured(state.config)
        if state.queue is not None:
            fields["jobs"] = (
                f"{state.queue.ready:,} ready, {state.queue.in_flight:,} in flight, {state.queue.delayed:,} delayed, "
                f"{state.queue.dead_lettered:,} given up"
            )
    return fields


def _configured(config: TopicConfig) -> dict[str, Any]:
    """What is not as it is by default, and how durable it is."""
    told: dict[str, Any] = {"durability": config.durability}
    lengths = ("ttl_ms", "idempotency_window_ms", "lease_ms", "claim_jitter_ms")
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if field.name not in ("type", "durability") and value != field.default:
            name = field.name.removesuffix("_ms").replace("_", " ")
            told[name] = show_length(value) if field.name in lengths else value
    return told
