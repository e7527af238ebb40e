"""``strandline takeover``: asks the standby servers of a replica to take over."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.exit_codes import CommandFailed
from strandline.cli.output import print_line
from strandline.engine.errors import BadConfig, DamagedFile
from strandline.engine.replica.leader import read_leader, request_takeover
from strandline.engine.replica.store import ObjectStoreReplica
from strandline.engine.segments.cold_tier import directory_of


def takeover_command(
    replica: Annotated[
        str,
        typer.Argument(metavar="URL", help="The replica: s3://bucket/prefix or a directory."),
    ],
) -> None:
    """Let a standby server take over from the server that uses a replica.

    The command writes a request to the replica. A server that waits with --standby takes over about a second later; a
    standby that starts after the request ignores it. The old leader cannot write to the replica any more, even if it
    still runs.

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
    except (BadConfig, DamagedFile, OSError) as error:
        raise CommandFailed(f"cannot request a takeover: {error}") from None
    address = f" at {leader.address}" if leader.address else ""
    print_line(f"requested a takeover from the server{address} (term {leader.term})")
