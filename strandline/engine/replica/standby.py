"""A standby: decides when to take over from the server that uses a replica.

It reads two objects and writes nothing. The server promises to change its beat in the object ``leader``; a standby that
has seen the same beat for the promised time, by its own monotonic clock, takes over. It also takes over when the object
``takeover`` gets new contents. A wrong decision loses nothing: the chain lets one server write at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec

from strandline.engine.errors import DamagedFile
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.leader import TAKEOVER, Leader, read_leader, write_leader
from strandline.engine.replica.store import ReplicaStore

log = logging.getLogger(__name__)

#: A standby looks this many times in the promised time, and at least this often.
LOOKS = 3
MAX_PAUSE_SECONDS = 1.0


class Standby:
    """Call :meth:`look` again and again, with a :attr:`pause` in between, until it returns True. ``now`` is a monotonic
    clock in seconds."""

    def __init__(self, store: ReplicaStore, now: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._now = now
        #: The server that took over last; None: unknown.
        self.leader: Leader | None = None
        #: Since when the leader has had the same beat.
        self._since = 0.0
        #: The term of the chain when the standby began to wait for this leader. Several standbys may want to take over
        #: at once; only the first of them finds this term.
        self.term = 0
        self._takeover: bytes | None = None
        self._has_looked = False
        self._said = ""

    def forget(self) -> None:
        """Begin to wait again, because another server took over first."""
        self.leader = None

    def give_back(self, address: str, lease_ms: int) -> None:
        """The takeover of this server at this address failed: let a standby take over when this lease has passed."""
        with suppress(OSError, DamagedFile):
            leader = read_leader(self._store)
            if leader is not None and leader.address == address:
                write_leader(self._store, msgspec.structs.replace(leader, lease_ms=lease_ms))
        self.forget()

    @property
    def pause(self) -> float:
        """The seconds until the next look."""
        lease_ms = 0 if self.leader is None else self.leader.lease_ms
        return min(lease_ms / 1000 / LOOKS, MAX_PAUSE_SECONDS) if lease_ms else MAX_PAUSE_SECONDS

    def look(self) -> bool:
        """Return whether to take over now. Raises OSError if the replica cannot be reached, and DamagedFile."""
        before = self.leader
        try:
            # The time before the request: what it returns may be older than the answer, but not older than this.
            now = self._now()
            leader = read_leader(self._store)
            takeover = self._store.read(TAKEOVER)
            if before is None or leader is None or leader.term != before.term:
                chain = Chain(self._store)
                chain.find_end()
                self.term = chain.term
        except BaseException:
            # The leader may not have reached the replica either, so what was seen before says nothing.
            self.forget()
            raise
        is_first, self._has_looked = not self._has_looked, True
        asked = takeover != self._takeover and takeover is not None and not is_first
        self._takeover = takeover
        self.leader = leader
        if asked:
            log.info("a takeover was requested")
            return True
        if leader is None or leader != before:
            self._since = self._now()
            self._say(leader)
            return False
        if leader.lease_ms and now - self._since > leader.lease_ms / 1000:
            log.warning("the leader%s gave no sign of life for %d ms", _at(leader), leader.lease_ms)
            return True
        return False

    def _say(self, leader: Leader | None) -> None:
        """Log what the standby waits for, whenever that changes."""
        if leader is None:
            text = "no server has used this replica yet; waiting for `strandline takeover`"
        elif leader.lease_ms:
            text = f"standing by for the leader{_at(leader)} (term {leader.term})"
        else:
            text = (
                f"standing by for the leader{_at(leader)} (term {leader.term}), which promises no sign of life "
                "(replica_lease_ms is 0); waiting for `strandline takeover`"
            )
        if text != self._said:
            self._said = text
            log.info("%s", text)


def _at(leader: Leader) -> str:
    return f" at {leader.address}" if leader.address else ""
