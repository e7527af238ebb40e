"""``strandline consumer``: named readers of logs, whose positions the server stores, and groups of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.command_class import Command, TableCommand
from strandline.cli.connection import complete_consumer, complete_log, connect
from strandline.cli.exit_codes import CommandFailed, Exit, not_found
from strandline.cli.options import ApiKey, AsJson, LogName, NamePrefix, Url
from strandline.cli.output import counted, print_fields, print_json, print_line, print_table
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_moment, show_time
from strandline.client.errors import NotFound
from strandline.client.topic_types import ConsumerPosition
from strandline.key_share import share_consumer

if TYPE_CHECKING:
    from strandline.client import Client, Consumer, ConsumerGroup, GroupState

ConsumerName = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="Name of the consumer.", autocompletion=complete_consumer)
]
_SEQ = re.compile(r"[0-9]{1,19}", re.ASCII)
_BEFORE_NOW = re.compile(r"-[0-9]+(ms|s|m|h|d|w)", re.ASCII)

app = typer.Typer(
    name="consumer",
    no_args_is_help=True,
    help="List, move and delete the named consumers of logs.",
)


@app.command("ls", cls=TableCommand)
def list_command(
    log: Annotated[
        str | None,
        typer.Argument(metavar="[LOG]", help="Only consumers of this log.", autocompletion=complete_log),
    ] = None,
    prefix: NamePrefix = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List consumers with their positions and lags.

    The lag is the number of sequence numbers after the position. The shares of a consumer group are one row, with the
    position of the share that is furthest behind; --json lists the consumer of each share.

    Example:
      strandline consumer ls orders
      strandline consumer ls --prefix shop/
    """
    if log is not None and prefix:
        raise typer.BadParameter("--prefix cannot be combined with LOG")
    with connect(url, api_key) as client:
        if log is None:
            found = list(client.consumers(prefix))
        else:
            # Also checks that the log exists.
            head = _state_of(client, log).head_seq
            found = [
                ConsumerPosition(log, name, each.seq, head, each.lag, each.committed_ts)
                for name, each in client.topic(log).consumers().items()
            ]
    if as_json:
        print_json({"consumers": [_document(one) for one in found]})
        return
    rows = [
        (one.topic, one.consumer, f"{one.seq:,}", f"{one.head_seq:,}", f"{one.lag:,}", show_time(one.committed_ts))
        for one in _folded(found)
    ]
    print_table(("log", "consumer", "seq", "head", "lag", "committed"), rows, right=("seq", "head", "lag"))


@app.command("show", cls=TableCommand)
def show_command(
    log: LogName, name: ConsumerName, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None
) -> None:
    """Show the position and the lag of a consumer, or the members and the shares of a consumer group.

    Example:
      strandline consumer show orders billing
    """
    with connect(url, api_key) as client:
        group = _group(client, log, name)
        if group is None:
            position = _position(client, log, name)
            if as_json:
                print_json(_document(position))
            else:
                print_fields(_fields(position))
            return
        state = group.state()
    if as_json:
        print_json(_group_document(state))
    else:
        _show_group(state)


class _SeekCommand(Command):
    """Accepts ``-1h`` as a position, which looks like an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [each[1:] if _BEFORE_NOW.fullmatch(each) else each for each in args])


@app.command("seek", cls=_SeekCommand)
def seek_command(
    log: LogName,
    name: ConsumerName,
    position: Annotated[
        str,
        typer.Argument(
            metavar="POSITION",
            help="start, end, a sequence number that counts as processed, or a time: -1h (an hour ago) or ISO 8601.",
        ),
    ],
    create: Annotated[
        bool, typer.Option("--create", help="Create the consumer if it does not exist, instead of failing.")
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Move a consumer: it continues after a sequence number, or with the first record of a time.

    All shares of a consumer group move together. The group must have no members.

    A reader that is running moves when it asks the server for its position the next time. If it commits before, the
    move has no effect, so stop the reader first.

    Example:
      strandline consumer seek orders billing -1h
      strandline consumer seek orders billing 1200
      strandline consumer seek orders billing 2026-11-15T10:00Z
      strandline consumer seek orders new end --create
    """
    seq = int(position) if _SEQ.fullmatch(position) else None
    since = None if seq is not None or position in ("start", "end") else _moment(position)
    with connect(url, api_key) as client:
        for consumer in _consumers(client, log, name, create):
            if seq is not None:
                moved = consumer.commit(seq)
            elif since is not None:
                moved = consumer.seek(since_ts=since)
            else:
                moved = consumer.seek(at="end" if position == "end" else "start")
    _show_moved(moved, name, as_json)


def _moment(position: str) -> int:
    try:
        return parse_moment(position, "POSITION")
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{position!r} is not a position; expected start, end, a sequence number, or a time: -1h (an hour ago) or "
            "ISO 8601 (2026-07-22T10:15:30Z)",
            param_hint="POSITION",
        ) from None


@app.command("reset", cls=Command)
def reset_command(
    log: LogName, name: ConsumerName, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None
) -> None:
    """Move a consumer or a consumer group to the start of the log: it reads every record again.

    Example:
      strandline consumer reset orders billing
    """
    with connect(url, api_key) as client:
        for consumer in _consumers(client, log, name, False):
            moved = consumer.seek(at="start")
    _show_moved(moved, name, as_json)


@app.command("rm", cls=Command)
def remove_command(
    log: LogName, name: ConsumerName, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None
) -> None:
    """Delete a consumer or a consumer group with its position. The records of the log stay.

    A consumer group must have no members.

    Example:
      strandline consumer rm orders billing
    """
    with connect(url, api_key) as client:
        group = _idle_group(client, log, name)
        if not (client.topic(log).consumer(name) if group is None else group).delete():
            raise _absent(log, name)
    if as_json:
        print_json({"log": log, "consumer": name, "deleted": True})
    else:
        print_line(f"deleted consumer {name} of log {log}")


# --- requests -------------------------------------------------------------------------------------------------------


def _state_of(client: Client, log: str) -> Any:
    try:
        return client.topic(log).state(touch=False)
    except NotFound:
        raise not_found("log", log) from None


def _consumers(client: Client, log: str, name: str, create: bool) -> list[Consumer[Any]]:
    """The consumer, which must exist unless ``create``, or those of the shares of a group. Raises CommandFailed."""
    group = _idle_group(client, log, name)
    if group is not None:
        return [client.topic(log).consumer(share.consumer) for share in group.state().shares]
    if not create:
        _position(client, log, name)
    return [client.topic(log).consumer(name)]


def _group(client: Client, log: str, name: str) -> ConsumerGroup[Any] | None:
    """The consumer group with this name; None if there is none. A consumer comes before a group of the same name."""
    _state_of(client, log)
    names = client.topic(log).consumers()
    is_group = name not in names and any(
        share is not None and share.group == name for share in map(share_consumer, names)
    )
    return client.topic(log).consumer_group(name) if is_group else None


def _idle_group(client: Client, log: str, name: str) -> ConsumerGroup[Any] | None:
    """Like ``_group``. Raises CommandFailed if the group has members."""
    group = _group(client, log, name)
    if group is not None and (members := group.state().members):
        raise CommandFailed(
            f"consumer group {name!r} has {counted(len(members), 'member')}; stop all members first: "
            + ", ".join(sorted(member.node for member in members)),
            Exit.CONFLICT,
        )
    return group


def _position(client: Client, log: str, name: str) -> ConsumerPosition:
    try:
        return client.topic(log).consumer(name).position()
    except NotFound as error:
        raise (_absent(log, name) if error.code == "consumer_not_found" else not_found("log", log)) from None


def _absent(log: str, name: str) -> CommandFailed:
    return CommandFailed(
        f"log {log!r} has no consumer {name!r}; list the names with `strandline consumer ls {log}`", Exit.NOT_FOUND
    )


# --- output ---------------------------------------------------------------------------------------------------------


def _document(position: ConsumerPosition) -> dict[str, Any]:
    return {
        "log": position.topic,
        "consumer": position.consumer,
        "seq": position.seq,
        "head": position.head_seq,
        "lag": position.lag,
        "committed_ts": position.committed_ts,
    }


def _folded(found: list[ConsumerPosition]) -> list[ConsumerPosition]:
    """With one row for all shares of a group."""
    rows: dict[tuple[str, str], ConsumerPosition] = {}
    for one in found:
        share = share_consumer(one.consumer)
        if share is None:
            rows[one.topic, one.consumer] = one
            continue
        name = f"{share.group} ({share.of} shares)"
        row = rows.get((one.topic, name), one)
        behind = min(row, one, key=lambda each: each.seq)
        latest = max(row.committed_ts, one.committed_ts)
        rows[one.topic, name] = ConsumerPosition(one.topic, name, behind.seq, one.head_seq, behind.lag, latest)
    return list(rows.values())


def _group_document(state: GroupState) -> dict[str, Any]:
    return {
        "log": state.topic,
        "group": state.group,
        "head": state.head_seq,
        "lag": state.lag,
        "members": [{"node": one.node, "shares": one.shares, "deadline": one.deadline} for one in state.members],
        "shares": [
            {
                "share": one.share,
                "consumer": one.consumer,
                "node": one.node,
                "seq": one.seq,
                "lag": one.lag,
                "committed_ts": one.committed_ts,
            }
            for one in state.shares
        ],
    }


def _show_group(state: GroupState) -> None:
    print_fields(
        {
            "log": state.topic,
            "group": state.group,
            "head": f"{state.head_seq:,}",
            "lag": f"{state.lag:,}",
            "members": f"{len(state.members):,}",
        }
    )
    print_line("")
    rows = [
        (f"{one.share}", one.node or "", f"{one.seq:,}", f"{one.lag:,}", show_time(one.committed_ts))
        for one in state.shares
    ]
    print_table(("share", "member", "seq", "lag", "committed"), rows, right=("share", "seq", "lag"))


def _fields(position: ConsumerPosition) -> dict[str, Any]:
    return {
        "log": position.topic,
        "consumer": position.consumer,
        "seq": f"{position.seq:,}",
        "head": f"{position.head_seq:,}",
        "lag": f"{position.lag:,}",
        "committed": show_time(position.committed_ts),
    }


def _show_moved(moved: ConsumerPosition, name: str, as_json: bool) -> None:
    if as_json:
        print_json({**_document(moved), "consumer": name})
    else:
        print_line(f"moved consumer {name} of log {moved.topic}: seq {moved.seq:,}, lag {moved.lag:,}")
