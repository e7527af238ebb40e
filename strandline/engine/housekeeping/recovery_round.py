"""Seal while the journal is replayed, so that a start needs no more memory than serving does.

A journal can be larger than the budget for unsealed records, for example after the budget or the memory was reduced. In
that case everything replayed so far is sealed between two journal files, and the replay continues from there.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import nullcontext
from itertools import chain

from strandline.engine.disk import Disk
from strandline.engine.errors import EngineError
from strandline.engine.housekeeping.maintenance import Runner, entry_of
from strandline.engine.housekeeping.round import RoundSnapshot, install
from strandline.engine.journal.backlog import MAX_COPIED
from strandline.engine.journal.file import journal_indexes, journal_path
from strandline.engine.journal.replay import Recovered
from strandline.engine.process import give_back
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.jobs import SealJob
from strandline.engine.segments.store import SegmentStore, segment_path
from strandline.engine.state.checkpoints import (
    JournalEntry,
    Manifest,
    SegmentEntry,
    manifest_frame,
    write_checkpoint,
    write_manifest,
)

log = logging.getLogger(__name__)


class RecoveryRounds:
    """Seals the replayed records whenever they reach ``limit`` bytes."""

    def __init__(self, disk: Disk, store: SegmentStore, runner: Runner, limit: int) -> None:
        self._disk = disk
        self._store = store
        self._runner = runner
        self._limit = limit
        self._failed = False

    def before_file(self, recovered: Recovered, index: int) -> None:
        """Seal if a round is due. Called after all files before the journal file ``index`` were replayed."""
        is_due = recovered.replayed_bytes >= self._limit or recovered.copied_bytes >= MAX_COPIED * self._limit
        if is_due and not self._failed:
            try:
                self._round(recovered, index)
            except (EngineError, OSError) as error:
                # The start can still succeed without sealing, but needs more memory.
                self._failed = True
                log.warning(
                    "the journal is larger than the limit for unsealed records, and sealing it at the start failed: "
                    "%s. The start continues with the whole journal in memory",
                    error,
                )

    def _round(self, recovered: Recovered, boundary: int) -> None:
        snapshot = RoundSnapshot(boundary, recovered.next_epoch, recovered.last_ts, None)
        snapshot.add(recovered.books.values())
        try:
            while snapshot.capture_some():
                pass
            sealed = self._seal(recovered, snapshot)
            snapshot.take_in(sealed, [])
            manifest = self._write(recovered, snapshot, sealed)
        except BaseException:
            recovered.changed |= snapshot.give_up()
            raise
        for captured in snapshot.captured.values():
            captured.book.filed_in = tuple(run.segment for run in captured.state.runs)
        if sealed is not None:
            self._store.add(sealed, "hot")
        install(snapshot, sealed, [], self._store, nullcontext())
        self._take_note(recovered, manifest)
        give_back()

    def _seal(self, recovered: Recovered, snapshot: RoundSnapshot) -> SegmentInfo | None:
        keep = [captured.keep for captured in snapshot.captured.values() if captured.keep is not None]
        manifest = recovered.manifest
        journals = [
            journal_path(index)
            for index in journal_indexes(self._disk)
            if manifest.boundary <= index < snapshot.boundary and index not in recovered.unreadable_journals
        ]
        if not keep or not journals:
            return None
        id = manifest.next_segment
        manifest.next_segment += 1
        return self._runner.run(SealJob(id, segment_path(id), journals, keep))

    def _write(self, recovered: Recovered, snapshot: RoundSnapshot, sealed: SegmentInfo | None) -> Manifest:
        old = recovered.manifest
        number = old.next_checkpoint
        old.next_checkpoint += 1
        name = f"{number:08d}.full"
        uses = Counter(run.segment for captured in snapshot.captured.values() for run in captured.state.runs)
        segments: list[SegmentEntry] = [*old.segments, *([] if sealed is None else [entry_of(sealed)])]
        manifest = Manifest(
            id=old.id,
            boundary=snapshot.boundary,
            journals=[entry for entry in old.journals if entry.index >= snapshot.boundary]
            or [JournalEntry(snapshot.boundary)],
            checkpoints=[name],
            segments=[entry for entry in segments if uses[entry.id] > 0],
            next_segment=old.next_segment,
            next_checkpoint=old.next_checkpoint,
            next_epoch=snapshot.next_epoch,
            last_ts=snapshot.last_ts,
        )
        write_checkpoint(self._disk, name, number, chain([manifest_frame(manifest)], snapshot.frames(full=True)))
        write_manifest(self._disk, manifest)
        recovered.uses = uses
        return manifest

    def _take_note(self, recovered: Recovered, manifest: Manifest) -> None:
        known = {entry.id for entry in manifest.segments}
        for id in self._store.ids():
            if id not in known:
                self._store.forget(id)
                self._store.drop(id)
        sealed = [index for index in journal_indexes(self._disk) if index < manifest.boundary]
        # The next round of housekeeping moves damaged files aside and removes the others.
        recovered.kept_journals = [index for index in sealed if index not in recovered.damaged_journals]
        recovered.manifest = manifest
        recovered.changed = set()
        recovered.replayed_bytes = recovered.copied_bytes = 0
