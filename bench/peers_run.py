"""This server next to other servers, each with the settings of a careful user, all in one run.

Topics are compared with Redis Streams, NATS JetStream, Kafka, a log table in PostgreSQL, and the server topics in Rust;
streams and collections are compared with other servers of the same protocol. A server that is not installed is skipped,
and the benchmark prints how to install it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import (
    peers_appends,
    peers_delivery,
    peers_history,
    peers_kafka,
    peers_nats,
    peers_ours,
    peers_postgres,
    peers_redis,
    peers_topics,
)
from bench.measure import Effort, Row
from bench.peers_appends import DURABILITIES
from bench.peers_http import COLLECTION_SERVERS, OUR_COLLECTIONS, OUR_STREAMS, STREAM_SERVERS
from bench.peers_rows import GROUP, Family, tell
from bench.peers_sides import Peer
from bench.streams_load import attempted
from bench.topics_load import raise_file_limit
from bench.workload import directory


class Lineup(NamedTuple):
    """This server in one protocol, and its peers."""

    ours: Peer
    peers: Sequence[Peer]
    suffix: str = ""


TOPICS = Lineup(
    peers_ours.PEER,
    (peers_redis.PEER, peers_nats.PEER, peers_kafka.PEER, peers_postgres.PEER, peers_topics.PEER),
)
LINEUPS = (
    TOPICS,
    Lineup(OUR_STREAMS, STREAM_SERVERS, ", streams"),
    Lineup(OUR_COLLECTIONS, COLLECTION_SERVERS, ", collections"),
)
WORKLOADS = (
    peers_appends.run,
    peers_history.catching_up,
    peers_delivery.fan_out,
    peers_delivery.queue,
    peers_history.growth,
)


def run(root: Path, effort: Effort) -> Iterator[Row]:
    raise_file_limit()
    lacking = peers_ours.PEER.lacking()
    if lacking:
        tell(f"skipped: {lacking}")
        return
    for lineup in LINEUPS:
        present = available(lineup.peers)
        if not present:
            continue
        with running(root, effort, lineup._replace(peers=present)) as family:
            for workload in WORKLOADS:
                yield from attempted(f"{workload.__name__}{lineup.suffix}", workload(family), GROUP)
    present = available(TOPICS.peers, told=True)
    if present:
        rows = peers_history.recovery(root, effort, [TOPICS.ours, *present])
        yield from attempted("recovery", rows, GROUP)


def available(peers: Sequence[Peer], *, told: bool = False) -> list[Peer]:
    """The peers that can be measured. For each of the others, the reason is printed once."""
    reasons = {peer.name: peer.lacking() for peer in peers}
    for name, reason in reasons.items():
        if reason and not told:
            tell(f"without {name}: {reason}")
    return [peer for peer in peers if not reasons[peer.name]]


@contextmanager
def running(root: Path, effort: Effort, lineup: Lineup) -> Iterator[Family]:
    """Starts all sides. A peer that does not start is skipped."""
    with directory(root, "peers") as base, ExitStack() as stack:
        ours = stack.enter_context(lineup.ours.start(base / "ours", DURABILITIES))
        peers = []
        for number, peer in enumerate(lineup.peers):
            try:
                peers.append(stack.enter_context(peer.start(base / f"peer{number}", DURABILITIES)))
            except (OSError, RuntimeError) as error:
                tell(f"without {peer.name}: {error}")
        yield Family(effort, ours, peers, lineup.suffix)
