"""``strandline takeover``: asks the standby servers of a replica to take over."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Annotated

import typer

from strandline.cli.exit_codes import CommandFailed
from strandline.cli.output import print_line
from strandline.engine.errors import BadConfig, DamagedFile
from strandline.engine.replica.leader import Leader, read_leader, request_takeover
from strandline.engine.replica.store import ObjectStoreReplica, ReplicaStore
from strandline.engine.segments.cold_tier import directory_of

#: A waiting standby looks for requests every second.
WAIT_SECONDS = 30.0
#: A request to an object store costs money, so the command does not ask all the time.
PAUSE_SECONDS = 0.25


def takeover_command(
    replica: Annotated[
        str,
        typer.Argument(metavar="URL", help="The replica: s3://bucket/prefix or a directory."),
    ],
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="How long to wait until a server has taken over; 0: do not wait. Default: 30.",
            show_default=False,
        ),
    ] = WAIT_SECONDS,
) -> None:
    """Let a standby server take over from the server that uses a replica.

    The command writes a request to the replica. A server that waits with --standby takes over about a second later; a
    standby that starts after the request ignores it. The old leader cannot write to the replica any more, even if it
    still runs.

    The command waits until a server has taken over, and fails if none has. The new leader answers requests once it has
    read the replica, which `strandline ping` shows.

    Example:
      strandline takeover s3://bucket/prefix
    """
    directory = directory_of(replica)
    if directory is not None and not directory.is_dir():
        raise CommandFailed(f"{replica} is not a directory; check the URL")
    try:
        store = ObjectStoreReplica(replica)
        leader = read_leader(store)
        if leader is None:
            raise CommandFailed(f"no server has used the replica {replica}; check the URL")
        request_takeover(store)
        print_line(f"requested a takeover from the server{_at(leader)} (term {leader.term})")
        successor = _successor(store, leader, wait) if wait else None
    except (BadConfig, DamagedFile, OSError) as error:
        raise CommandFailed(f"cannot request a takeover: {error}") from None
    if successor is not None:
        print_line(f"the server{_at(successor)} has taken over (term {successor.term})")
    elif wait:
        raise CommandFailed(
            f"no server has taken over within {wait:g} s; start a server with --standby, wait until it logs that it is "
            "standing by, and repeat the command"
        )


def _successor(store: ReplicaStore, leader: Leader, seconds: float) -> Leader | None:
    """Wait until another server is the leader. None: it took too long."""
    until = monotonic() + seconds
    while True:
        found = read_leader(store)
        if found is not None and found.term > leader.term:
            return found
        if monotonic() >= until:
            return None
        sleep(PAUSE_SECONDS)


def _at(leader: Leader) -> str:
    return f" at {leader.address}" if leader.address else ""
