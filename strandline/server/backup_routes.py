"""The route of backups: the copies of the data that survive the loss of this machine.

These are the backups at the location in the settings, the replica, and the segments in the cold tier. A request to an
object store can take long, so one thread at a time asks the stores, and a request waits for it only for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from os.path import abspath
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strandline.engine import Engine
from strandline.engine.backup import survey
from strandline.engine.errors import EngineError
from strandline.engine.state.checkpoints import read_manifest
from strandline.server.settings import Settings
from strandline.service.http import NO_STORE, Call, Reply, Route, encode
from strandline.service.problems import FORBIDDEN, Refusal
from strandline.service.workers import Workers

log = logging.getLogger(__name__)

#: What was found is used for this long, so that open consoles cause few requests to the stores.
KEPT_MS = 15_000
#: How long a request waits for the stores.
ANSWER_SECONDS = 10.0

Number = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(ge=0)]


class BackupRow(msgspec.Struct, kw_only=True):
    """One backup. Times are milliseconds since 1970."""

    name: str
    time: Number
    #: The backup contains every change up to this time.
    until: int
    #: Whether it is a backup of this data directory. A pool may have those of several.
    own: bool
    #: The id of the data directory.
    history: str
    #: The files that a restore needs, and their bytes.
    files: Number
    bytes: Number
    segments: Number
    #: The records in its segments, also those that were deleted or are too old by now. The journal has further ones.
    sealed_records: Number
    #: The bytes of the files that the backup before it did not have.
    new_bytes: Number
    #: The number of files that the location lacks, or has with another size; null: the files were not listed.
    missing_files: Number | None
    #: Every file was read and found good at this time or later; null: this is not known of every file.
    verified_at: Number | None


class RestorableInterval(msgspec.Struct):
    """Every moment in it can be restored."""

    start: int
    end: int
    own: bool


class BackupsFound(msgspec.Struct, kw_only=True):
    #: Newest first, at most 200.
    backups: list[BackupRow]
    total: Number
    intervals: list[RestorableInterval]
    #: The files at the location and their bytes; null: there are too many, or listing them takes too long.
    files: Number | None
    bytes: Number | None
    #: The descriptions of backups that cannot be read.
    damaged: list[str]


class ReplicaShown(msgspec.Struct, kw_only=True):
    location: str
    #: `replaced`: another server has taken over.
    role: Literal["leader", "replaced"]
    term: Number
    #: The last chunk of the journal that was stored.
    chunk: Number
    #: Whether another server could start from the replica.
    has_state: bool
    #: The store does not accept chunks.
    away: bool
    #: The bytes of the journal that the replica lacks, and for how long it has lacked the oldest of them.
    waiting_bytes: Number
    lag_ms: Milliseconds
    #: The shortest time between two uploads of the journal.
    interval_ms: Number
    #: The writes that wait for the replica, and how long the oldest has waited.
    waiting_commits: Number
    waiting_ms: Milliseconds
    #: The segments that the replica has and this machine still lacks, after a takeover.
    missing_segments: Number
    #: Standby servers take over when this server has given no sign of life for this long; 0: it gives none.
    lease_ms: Number


class FollowerShown(msgspec.Struct, kw_only=True):
    """A server that follows another one. Its data directory is only a cache."""

    #: The replica of the leader.
    location: str
    #: Where clients reach the leader, as host:port; empty if unknown.
    leader: str
    term: Number
    #: The last chunk of the journal that was read.
    chunk: Number
    #: It has everything that was in the replica this long ago.
    lag_ms: Milliseconds


class ColdTierShown(msgspec.Struct, kw_only=True):
    location: str
    segments: Number
    bytes: Number
    #: The segments that are only on this machine, and their bytes.
    hot_segments: Number
    hot_bytes: Number
    #: The bytes of cold segments that are cached on this machine.
    cached_bytes: Number
    #: Why the store cannot be used; empty: it can.
    error: str


class BackupsAnswer(msgspec.Struct, kw_only=True):
    now: Number
    #: The absolute path of the data directory.
    data_dir: str
    #: The location in the settings; empty: none is set.
    location: str
    #: The time of the last look at the stores; null: they have not answered yet.
    checked_at: Number | None
    #: What was found at the location; null: nothing yet.
    found: BackupsFound | None
    #: Why the location cannot be read; empty: it can.
    error: str
    #: null: the server has none.
    replica: ReplicaShown | None
    #: null: the server follows none.
    follower: FollowerShown | None
    cold_tier: ColdTierShown | None
    #: The bytes of unsealed records, which are in the journal only.
    journal_bytes: Number
    #: The number of logs by durability.
    logs: dict[str, Number]


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the stores answered."""

    at: int
    found: BackupsFound | None = None
    error: str = ""
    cold_error: str = ""


class BackupRoutes:
    """``wall`` returns the time of day in milliseconds."""

    def __init__(self, engine: Engine, settings: Settings, workers: Workers, wall: Callable[[], int]) -> None:
        self._engine = engine
        self._settings = settings
        self._workers = workers
        self._wall = wall
        self._last: _Look | None = None
        self._looking: asyncio.Future[_Look] | None = None

    def routes(self) -> list[Route]:
        return [Route(method="GET", path="/v0/backups", handler=self.get, scopes=("admin",))]

    async def get(self, call: Call) -> Reply:
        """GET /v0/backups"""
        if call.access.prefixes:
            raise Refusal(FORBIDDEN, "backups contain all logs, so the API key must have access to all names")
        look = await self._look()
        body = await self._workers.urgent.run(lambda: encode(self._answer(look)))
        return Reply(body, headers=(NO_STORE,))

    async def _look(self) -> _Look | None:
        """What the stores answered last. Asks them if that was long ago, and waits for a while."""
        last = self._last
        if last is not None and 0 <= self._wall() - last.at < KEPT_MS:
            return last
        if self._looking is None:
            self._looking = asyncio.wrap_future(self._workers.lake.submit(self._ask))
            self._looking.add_done_callback(self._looked)
        await asyncio.wait({self._looking}, timeout=ANSWER_SECONDS)
        return self._last

    def _looked(self, looking: asyncio.Future[_Look]) -> None:
        self._looking = None
        if looking.cancelled():
            return
        error = looking.exception()
        if error is None:
            self._last = looking.result()
        else:
            log.error("cannot look at the backups", exc_info=error)
            self._last = _Look(at=self._wall(), error="the server cannot look at the backups; its log says why")

    def _ask(self) -> _Look:
        """Runs on a worker thread."""
        target = self._settings.server.backups
        found, error, cold_error = None, "", ""
        try:
            self._engine.store.reach_cold_tier()
        except OSError as failure:
            cold_error = str(failure)
        if target:
            try:
                found = self._found(target)
            except (EngineError, OSError) as failure:
                error = str(failure)
        return _Look(at=self._wall(), found=found, error=error, cold_error=cold_error)

    def _found(self, target: str) -> BackupsFound:
        seen = survey(target)
        manifest = read_manifest(self._engine.disk)
        own = "" if manifest is None else manifest.id
        return BackupsFound(
            backups=[BackupRow(**msgspec.structs.asdict(one), own=one.history == own) for one in seen.backups],
            total=seen.total,
            intervals=[RestorableInterval(one.start, one.end, one.history == own) for one in seen.intervals],
            files=seen.files,
            bytes=seen.bytes,
            damaged=seen.damaged,
        )

    def _answer(self, look: _Look | None) -> BackupsAnswer:
        engine, target = self._engine, self._settings.server.backups
        return BackupsAnswer(
            now=self._wall(),
            data_dir=abspath(self._settings.storage.data_dir),
            location=target if "://" in target or not target else str(Path(target).absolute()),
            checked_at=None if look is None else look.at,
            found=None if look is None else look.found,
            error="the location has not answered yet"
            if look is None and target
            else ""
            if look is None
            else look.error,
            replica=self._replica(),
            follower=self._follower(),
            cold_tier=self._cold_tier("" if look is None else look.cold_error),
            journal_bytes=engine.stats().journal_bytes,
            logs=dict(engine.totals.logs),
        )

    def _replica(self) -> ReplicaShown | None:
        replica, storage = self._engine.replica, self._settings.storage
        if replica is None:
            return None
        stats = replica.stats()
        return ReplicaShown(
            location=storage.replica,
            role="replaced" if stats.superseded else "leader",
            term=stats.term,
            chunk=stats.chunk,
            has_state=replica.has_state,
            away=stats.away,
            waiting_bytes=stats.waiting_bytes,
            lag_ms=round(stats.lag_ms, 1),
            interval_ms=storage.replica_interval_ms,
            waiting_commits=stats.waiting_commits,
            waiting_ms=round(stats.waiting_ms, 1),
            missing_segments=stats.missing_segments,
            lease_ms=storage.replica_lease_ms,
        )

    def _follower(self) -> FollowerShown | None:
        follower = self._engine.follower
        if follower is None:
            return None
        stats = follower.stats()
        return FollowerShown(
            location=self._settings.storage.follow,
            leader=stats.leader,
            term=stats.term,
            chunk=stats.chunk,
            lag_ms=round(stats.lag_ms, 1),
        )

    def _cold_tier(self, error: str) -> ColdTierShown | None:
        store = self._engine.store
        if not store.has_cold_tier:
            return None
        tiers = store.tiers()
        return ColdTierShown(
            location=self._settings.storage.cold_url,
            segments=tiers["cold"][0],
            bytes=tiers["cold"][1],
            hot_segments=tiers["hot"][0],
            hot_bytes=tiers["hot"][1],
            cached_bytes=store.cold_cached_bytes,
            error=error,
        )
