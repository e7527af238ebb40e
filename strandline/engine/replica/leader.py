"""The object ``leader``: which server has taken over last, where clients reach it, and a sign of life.

The object is a hint. Which server may write is decided by the chain alone, so it does no harm if a server that was
replaced overwrites this object once more.
"""

from __future__ import annotations

import os

import msgspec

from strandline.engine.errors import DamagedFile
from strandline.engine.replica.store import ReplicaStore

LEADER = "leader"
#: A request to standby servers to take over now. It holds a text that differs from one request to the next.
TAKEOVER = "takeover"


class Leader(msgspec.Struct, frozen=True):
    term: int
    #: As host:port; empty if unknown.
    address: str
    #: How often the leader changes ``beat``, in milliseconds; 0: never.
    lease_ms: int = 0
    beat: int = 0


def write_leader(store: ReplicaStore, leader: Leader) -> None:
    store.put(LEADER, msgspec.json.encode(leader))


def read_leader(store: ReplicaStore) -> Leader | None:
    raw = store.read(LEADER)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Leader)
    except msgspec.MsgspecError as error:
        raise DamagedFile(f"{store.describe()}/{LEADER}", str(error)) from error


def request_takeover(store: ReplicaStore) -> None:
    store.put(TAKEOVER, os.urandom(8).hex().encode())
