"""All routers: create, find, list and remove them. Their definitions are stored in a log, one live record per router.

A definition also names the epochs of its logs, so that a definition whose log was removed, or created again under the
same name, is recognised when the server starts.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from strandline.delivery.hub import Hub
from strandline.delivery.routers.router import (
    POSITION,
    SKIPPED,
    TOGETHER,
    Hops,
    Router,
    RouterCycle,
    RouterDefinition,
    RouterFanIn,
    RouterRepointed,
    closes_cycle,
    on_cycles,
)
from strandline.delivery.routers.source import RouterSource, Shared
from strandline.engine import Batch, Commit, Config, Engine, Log
from strandline.engine.errors import BadRequest, EngineError
from strandline.engine.state.log_names import Names

NAME = "__routers__"
_CONFIG = Config(durability="fsync")
_PAGE = 1000

T = TypeVar("T")


class RouterEntry(msgspec.Struct, frozen=True):
    """A definition as it is stored."""

    definition: RouterDefinition
    source_epoch: int
    dest_epoch: int


_decoder = msgspec.json.Decoder(RouterEntry)


class Register:
    """The stored definitions. A change is journaled when its call returns, and durable when ``durable`` is done.
    Removing a router deletes its record, so the log holds only live definitions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seqs: dict[str, int] = {}

    @property
    def version(self) -> tuple[int, int, int] | None:
        """The epoch, the head and the revision of the log; None: there is none."""
        log = self._engine.find(NAME)
        return None if log is None else (log.epoch, log.head, log.revision)

    def load(self) -> list[RouterEntry]:
        """Read the definitions in the order in which they were written, and delete those that were replaced."""
        log = self._engine.find(NAME)
        if log is None:
            return []
        self._seqs = {}
        entries: dict[str, RouterEntry] = {}
        replaced: list[int] = []
        after, caught_up = 0, False
        while not caught_up:
            page = log.read(after, _PAGE)
            for seq, data in zip(page.seqs, page.data, strict=True):
                entry = _decoder.decode(data)
                name = entry.definition.name
                if name in self._seqs:
                    replaced.append(self._seqs[name])
                self._seqs[name] = seq
                entries[name] = entry
            after, caught_up = page.next_after, page.caught_up
        if replaced and self._engine.follower is None:
            log.delete(seqs=replaced)
        return list(entries.values())

    def put(self, entry: RouterEntry) -> None:
        """Store a definition, replacing an earlier one of the same name."""
        name = entry.definition.name
        with self._engine.lock:
            log = self._log()
            seq = log.next_seq
            log.append(Batch([msgspec.json.encode(entry)], keys=[name]))
            before = self._seqs.get(name)
            self._seqs[name] = seq
            if before is not None:
                # A crash before the deletion leaves both records. The later one counts.
                with suppress(EngineError):
                    log.delete(seqs=[before])

    def remove(self, names: Iterable[str]) -> None:
        seqs = [self._seqs[name] for name in names if name in self._seqs]
        if seqs:
            self._log().delete(seqs=seqs)
            for name in names:
                self._seqs.pop(name, None)

    def durable(self, value: T) -> Commit[T]:
        """A commit of ``value`` that is done when all changes so far are durable."""
        with self._engine.lock:
            return self._engine.later((), value, None)

    def _log(self) -> Log:
        log = self._engine.find(NAME)
        if log is None:
            self._engine.create(NAME, _CONFIG)
            log = self._engine.log(NAME)
        return log


class Routers:
    """All routers of a server. Created and used on the event loop's thread. Stored routers resume at once."""

    def __init__(self, engine: Engine, hub: Hub) -> None:
        self._engine = engine
        self._shared = Shared(engine, hub, self._gone)
        self._register = Register(engine)
        self._routers: dict[str, Router] = {}
        self._names = Names()
        #: By epoch: the source that a log is, and the source that feeds a log.
        self._from: dict[int, RouterSource] = {}
        self._into: dict[int, RouterSource] = {}
        #: The epoch of each destination's source, by epoch of the destination: the graph of all routers.
        self._above: dict[int, int] = {}
        #: The number of routers into a log, by its epoch.
        self._leading_into: dict[int, int] = {}
        #: The version of the stored definitions that these routers have, on a server that follows another one.
        self._version = self._register.version
        self._load()

    def __len__(self) -> int:
        return len(self._routers)

    @property
    def forwarded_total(self) -> int:
        """Records forwarded since the server started, including records that were lost before."""
        return self._shared.forwarded_total

    def demote_while(self, busy: Callable[[], bool]) -> None:
        """Give forwarding the lowest priority while ``busy`` returns True."""
        self._shared.demoted = busy

    def spare(self, spared: Callable[[Log], bool]) -> None:
        """Pause forwarding into a log while ``spared`` returns True for it. Its routers wait as for a full
        destination."""
        self._shared.spared = spared

    # --- creating ------------------------------------------------------------------------------------------

    def check(self, definition: RouterDefinition) -> bool:
        """Return whether the router would be new. Raises if the router is not allowed. Its logs need not exist yet."""
        name, source, dest = definition.name, definition.source, definition.dest
        if source == dest:
            raise BadRequest(f"router {name!r}: source and destination are the same log, {source!r}")
        known = self.get(name)
        if known is not None and (known.source.name, known.dest.name) != (source, dest):
            raise RouterRepointed(name, known.source.name, known.dest.name)
        from_log, to_log = self._engine.find(source), self._engine.find(dest)
        if to_log is not None and to_log.epoch in self._into:
            above = self._into[to_log.epoch].log
            if above.name != source:
                raise RouterFanIn(dest, above.name)
        may_close = definition.allow_cycle or (known is not None and not known.definition.allow_cycle)
        if from_log is not None and to_log is not None and not may_close:
            cycle = closes_cycle(self._above, from_log.epoch, to_log.epoch)
            if cycle is not None:
                # The first and the last log are the source; all logs in between already have routers.
                raise RouterCycle([source, *(self._from[epoch].log.name for epoch in cycle[1:-1]), source])
        return known is None

    def put(self, definition: RouterDefinition) -> Commit[bool]:
        """Create or change a router. The commit's value says whether it is new. A new router starts at the end of its
        source.

        The router is active when this returns, and durable when the commit is done.
        """
        new = self.check(definition)
        source, dest = self._engine.log(definition.source), self._engine.log(definition.dest)
        known = self._routers.get(definition.name)
        if known is not None and known.definition == definition:
            return self._register.durable(False)
        with self._engine.lock:
            # The cursors are journaled before the definition, so no router is without cursors, and a changed router
            # does not look again at records that its earlier filter skipped.
            position, skipped = (source.head,) * 2 if known is None else (known.position, known.skipped)
            source.move_cursor(POSITION + definition.name, position)
            source.move_cursor(SKIPPED + definition.name, skipped)
            self._register.put(RouterEntry(definition, source.epoch, dest.epoch))
        if known is None:
            closed = closes_cycle(self._above, source.epoch, dest.epoch)
            self._add(Router(definition, source, dest, position, skipped))
            if closed is not None:
                self._find_cycles()
        else:
            known.written_skipped = skipped
            known.define(definition)
        return self._register.durable(new)

    def _add(self, router: Router) -> None:
        source, into = router.source, router.dest.epoch
        forwarded = self._from.get(source.epoch)
        if forwarded is None:
            forwarded = self._from[source.epoch] = RouterSource(self._shared, source)
        forwarded.add(router)
        self._into[into] = forwarded
        self._above[into] = source.epoch
        self._leading_into[into] = self._leading_into.get(into, 0) + 1
        self._routers[router.name] = router
        self._names.add(router.name)

    # --- looking up ----------------------------------------------------------------------------------------

    def get(self, name: str) -> Router | None:
        router = self._routers.get(name)
        if router is not None and (router.source.dropped or router.dest.dropped):
            self._gone(router.source if router.source.dropped else router.dest)
            return None
        return router

    def lag(self, name: str) -> int | None:
        """The number of seqs of its source that a router has not reached yet, or None if the router does not exist."""
        router = self.get(name)
        return None if router is None else router.lag

    def page(
        self,
        prefix: str = "",
        source: str | None = None,
        dest: str | None = None,
        after: str = "",
        limit: int = 100,
        prefixes: tuple[str, ...] = (),
    ) -> tuple[list[Router], bool]:
        """Routers after the name ``after``, in order of their names, and whether there are more. With ``prefixes``,
        only routers whose name, source and destination begin with one of them."""
        found: list[Router] = []
        for name in self._names.page(prefix, after, None):
            if prefixes and not name.startswith(prefixes):
                continue
            router = self.get(name)
            if router is not None and prefixes:
                if not (router.source.name.startswith(prefixes) and router.dest.name.startswith(prefixes)):
                    continue
            if router is None or (source is not None and router.source.name != source):
                continue
            if dest is not None and router.dest.name != dest:
                continue
            if len(found) == limit:
                return found, True
            found.append(router)
        return found, False

    # --- removing ------------------------------------------------------------------------------------------

    def remove(self, name: str) -> Commit[bool]:
        """Stop forwarding at once. The commit's value says whether the router existed. Copies stay in the
        destination."""
        if self._engine.follower is not None:
            raise self._engine.follower.refusal
        router = self.get(name)
        if router is None:
            return Commit.of(False)
        self._forget([router])
        return self._register.durable(True)

    def remove_touching(self, log: Log) -> list[str]:
        """Remove the routers from or to a log that is being removed. Returns their names in order.

        The removal is durable once the removal of the log, or any later change of a ``fsync`` or ``replicated`` log, is
        durable.
        """
        going = self.touching(log)
        if going:
            self._forget(going, log.epoch)
        return sorted(router.name for router in going)

    def touching(self, log: Log) -> list[Router]:
        """The routers from or to a log."""
        found: dict[str, Router] = {}
        if log.epoch in self._from:
            found.update(self._from[log.epoch].routers)
        if log.epoch in self._into:
            leading = self._into[log.epoch].routers
            found.update({name: router for name, router in leading.items() if router.dest.epoch == log.epoch})
        return list(found.values())

    def _gone(self, log: Log) -> None:
        """Remove the routers of a log that was dropped elsewhere."""
        # If the disk is full, the routers are removed when they are next listed, or at the next start.
        with suppress(EngineError):
            self.remove_touching(log)

    def _forget(self, routers: list[Router], gone: int = 0) -> None:
        """``gone`` is the epoch of a log that is being removed together with its cursors."""
        self._register.remove([router.name for router in routers])
        for router in routers:
            source, into = router.source.epoch, router.dest.epoch
            forwarded = self._from[source]
            forwarded.remove(router.name)
            if not forwarded.routers:
                del self._from[source]
                if source != gone and not router.source.dropped:
                    with suppress(EngineError):
                        router.source.drop_cursor(TOGETHER)
            self._leading_into[into] -= 1
            if not self._leading_into[into]:
                del self._leading_into[into], self._into[into], self._above[into]
            del self._routers[router.name]
            self._names.remove(router.name)
            if source != gone and not router.source.dropped:
                # A leftover cursor is harmless: a new router of this name overwrites it.
                with suppress(EngineError):
                    router.source.drop_cursor(router.position_cursor)
                    router.source.drop_cursor(router.skipped_cursor)
        if self._shared.hops:
            self._find_cycles()

    # --- forwarding ----------------------------------------------------------------------------------------

    def catch_up(self, log: Log) -> Commit[Any] | None:
        """Forward all records that are on their way into the log, over any number of hops.

        Returns a commit if some of them wait for the disk. There may be more records once it is done.
        """
        source = self._into.get(log.epoch)
        if source is None:
            return None
        way = {source: log}
        while (further := self._into.get(source.log.epoch)) is not None and further not in way:
            way[further] = source.log
            source = further
        unfinished = [source.catch_up(dest) for source, dest in reversed(way.items())]
        return next((commit for commit in unfinished if commit is not None), None)

    def _find_cycles(self) -> None:
        hops, cyclic = self._shared.hops, on_cycles(self._above)
        for epoch in hops.keys() - cyclic:
            del hops[epoch]
        for epoch in cyclic - hops.keys():
            hops[epoch] = Hops()

    # --- starting ------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Resume the stored routers. Remove routers whose logs were dropped or created again."""
        entries = self._register.load()
        if self._shared.is_passive:
            self._show(entries)
            return
        stale: list[str] = []
        for entry in entries:
            definition = entry.definition
            source, dest = self._engine.find(definition.source), self._engine.find(definition.dest)
            if source is None or dest is None or (source.epoch, dest.epoch) != (entry.source_epoch, entry.dest_epoch):
                stale.append(definition.name)
                if source is not None and source.epoch == entry.source_epoch:
                    source.drop_cursor(POSITION + definition.name)
                    source.drop_cursor(SKIPPED + definition.name)
                continue
            self._add(Router.resumed(definition, source, dest))
        if stale:
            self._register.remove(stale)
        self._find_cycles()
        for source_of_some in self._from.values():
            source_of_some.submit()

    # --- following -----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """On a server that follows another one: show the routers of the leader, which forwards the records."""
        version = self._register.version
        if version == self._version:
            for router in self._routers.values():
                if not router.source.dropped:
                    router.resume()
            return

        def show(read: Future[list[RouterEntry]]) -> None:
            if not read.cancelled() and read.exception() is None:
                self._version = version
                self._show(read.result())

        self._shared.hub.in_thread(self._register.load).add_done_callback(show)

    def _show(self, entries: Iterable[RouterEntry]) -> None:
        """Have exactly the routers of these definitions whose logs exist. Nothing is forwarded or stored."""
        for known in (self._routers, self._from, self._into, self._above, self._leading_into):
            known.clear()
        self._names = Names()
        for entry in entries:
            source, dest = self._engine.find(entry.definition.source), self._engine.find(entry.definition.dest)
            if source is None or dest is None or (source.epoch, dest.epoch) != (entry.source_epoch, entry.dest_epoch):
                continue
            self._add(Router.resumed(entry.definition, source, dest))
