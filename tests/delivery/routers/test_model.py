"""Routers against a model: logs as lists, routers as positions in them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.manual_loop import House

from strandline.delivery.routers import RouterError, RouterFilter

LOGS = "abcde"
names = st.sampled_from(LOGS)
keys = st.sampled_from([None, "x", "xy", "z"])
filters = st.sampled_from([None, None, RouterFilter(key="x"), RouterFilter(prefix="x")])


class ModelLog:
    def __init__(self) -> None:
        #: By seq, from 1 on; None: deleted.
        self.records: list[tuple[str, str | None] | None] = []
        #: Destination, filter, position, forwarded; by name of the router.
        self.routers: dict[str, list[object]] = {}

    def live(self) -> list[tuple[int, str, str | None]]:
        return [(seq, *record) for seq, record in enumerate(self.records, 1) if record is not None]


class RoutersModel(RuleBasedStateMachine):
    """Without cycles, caps and crashes, which have tests of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.logs = {name: ModelLog() for name in LOGS}
        self.above: dict[str, str] = {}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.home = House(Path(self.directory.name))
        for name in LOGS:
            self.home.log(name)

    def teardown(self) -> None:
        self.home.engine.close()
        self.directory.cleanup()

    # --- what the model does ---------------------------------------------------------------------------------------

    def forward(self, name: str) -> None:
        log = self.logs[name]
        for router in log.routers.values():
            dest, wanted, position, forwarded = router
            assert isinstance(dest, str)
            assert isinstance(position, int)
            assert isinstance(forwarded, int)
            for record in log.records[position:]:
                if record is None:
                    continue
                data, key = record
                if wanted is None or (isinstance(wanted, RouterFilter) and key is not None and wanted.accepts(key)):
                    self.logs[dest].records.append((data, key))
                    forwarded += 1
            router[2:] = [len(log.records), forwarded]

    def way_up(self, name: str) -> list[str]:
        way = []
        while name in self.above:
            name = self.above[name]
            way.append(name)
        return way

    # --- what happens ----------------------------------------------------------------------------------------------

    @rule(name=names, key=keys, count=st.integers(1, 4))
    def write(self, name: str, key: str | None, count: int) -> None:
        data = [str(self.count + number) for number in range(count)]
        self.count += count
        self.home.write(name, *data, key=key)
        self.logs[name].records += [(text, key) for text in data]

    @rule(name=names, seqs=st.lists(st.integers(1, 30), max_size=4))
    def delete(self, name: str, seqs: list[int]) -> None:
        self.home.log(name).delete(seqs=seqs).wait()
        for seq in seqs:
            if seq <= len(self.logs[name].records):
                self.logs[name].records[seq - 1] = None

    @rule(source=names, dest=names, wanted=filters)
    def put(self, source: str, dest: str, wanted: RouterFilter | None) -> None:
        possible = source != dest and self.above.get(dest, source) == source and dest not in self.way_up(source)
        if source == dest:
            return
        try:
            self.home.route(source, dest, filter=wanted)
        except RouterError:
            assert not possible
            return
        assert possible
        known = self.logs[source].routers.get(f"{source}->{dest}")
        if known is None:
            self.logs[source].routers[f"{source}->{dest}"] = [dest, wanted, len(self.logs[source].records), 0]
            self.above[dest] = source
        else:
            known[1] = wanted

    @rule(source=names, dest=names)
    def remove(self, source: str, dest: str) -> None:
        known = self.logs[source].routers.pop(f"{source}->{dest}", None)
        assert self.home.routers.remove(f"{source}->{dest}").wait() is (known is not None)
        if known is not None:
            del self.above[dest]

    @rule(name=names)
    def drop(self, name: str) -> None:
        touching = set(self.logs[name].routers)
        if name in self.above:
            touching.add(f"{self.above[name]}->{name}")
            source = self.above.pop(name)
            del self.logs[source].routers[f"{source}->{name}"]
        self.above = {dest: source for dest, source in self.above.items() if source != name}
        log = self.home.log(name)
        assert self.home.routers.remove_touching(log) == sorted(touching)
        log.drop().wait()
        self.home.log(name)
        self.logs[name] = ModelLog()

    @rule(name=names)
    def catch_up(self, name: str) -> None:
        self.home.routers.catch_up(self.home.log(name))
        for source in reversed(self.way_up(name)):
            self.forward(source)

    @rule()
    def turn(self) -> None:
        self.home.turn()
        for name in sorted(LOGS, key=lambda name: len(self.way_up(name))):
            self.forward(name)

    @rule()
    def seal(self) -> None:
        self.home.engine.seal()

    @rule()
    def restart(self) -> None:
        self.home.engine.close()
        self.home = House(Path(self.directory.name))

    # --- what must be true -----------------------------------------------------------------------------------------

    @invariant()
    def logs_are_as_in_the_model(self) -> None:
        for name, log in self.logs.items():
            found = [(record.seq, record.data.decode(), record.key) for record in self.home.records(name)]
            assert found == log.live()

    @invariant()
    def routers_are_as_in_the_model(self) -> None:
        expected = {
            name: (router[2], router[3], len(log.records) - int(str(router[2])))
            for log in self.logs.values()
            for name, router in log.routers.items()
        }
        found = {
            router.name: (router.source.head - router.lag, router.forwarded_total, router.lag)
            for router in self.home.routers.page()[0]
        }
        assert found == expected


RoutersModel.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
test_routers_do_what_the_model_does = RoutersModel.TestCase
