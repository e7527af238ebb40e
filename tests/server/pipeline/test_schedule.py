from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.reads.status import EngineExtent
from strandline.lake.status import Lag, PipelineStatus, RoundSummary, State
from strandline.server.pipeline.schedule import ERASE_SECONDS, MAX_BACKOFF_SECONDS, StartSchedule, Thresholds

THRESHOLDS = Thresholds(start_records=1000, start_bytes=1_000_000, start_s=3600, idle_s=120)
DAY = 86_400.0


class World:
    """A decider, the time, and a pipeline that does what it is told to have done."""

    def __init__(self, thresholds: Thresholds = THRESHOLDS, status: PipelineStatus | None = None) -> None:
        self.decider = StartSchedule(thresholds)
        self.tick = 1000.0
        self.reach = EngineExtent()
        self.status = status

    @property
    def wall(self) -> int:
        return 1_700_000_000_000 + round(self.tick * 1000)

    def append(self, records: int, size: int = 0) -> None:
        self.reach = self.reach._replace(
            records=self.reach.records + records, written=self.reach.written + (size or records)
        )

    def erase(self) -> None:
        self.reach = self.reach._replace(erasures=self.reach.erasures + 1)

    def look(self, seconds: float = 1.0) -> str:
        """Let time pass, look, and tell why it would be started."""
        self.tick += seconds
        self.decider.see(self.tick, self.wall, self.reach, self.status)
        return self.decider.why_start(self.tick)

    def say(self, state: State, rounds: list[RoundSummary] | None = None) -> None:
        """The pipeline writes its status."""
        before = self.status or PipelineStatus()
        self.status = PipelineStatus(state=state, since=self.wall, rounds=[*before.rounds, *(rounds or [])])

    def round(self, seconds: float = 5.0, *, error: str | None = None) -> None:
        """A whole round, with looks in between."""
        begin = self.wall
        self.say("running")
        self.look(seconds)
        self.say("idle", [RoundSummary(begin=begin, end=self.wall, error=error)])
        self.look(0.1)

    def start(self) -> None:
        self.decider.started(self.tick)


def test_with_nothing_to_do_it_is_never_started() -> None:
    world = World()
    assert [world.look(DAY) for _ in range(10)] == [""] * 10


def test_it_is_started_once_enough_is_new() -> None:
    world = World()
    world.append(999)
    assert world.look() == ""
    world.append(1)
    assert world.look() == "1000 new records"


def test_many_bytes_are_enough_as_well() -> None:
    world = World()
    world.append(3, size=999_999)
    assert world.look() == ""
    world.append(1, size=1)
    assert "the journal has grown by 1000000 bytes" in world.look()


def test_bytes_without_records_are_no_reason() -> None:
    world = World()
    world.look()
    world.append(0, size=1 << 40)
    assert world.look(DAY) == ""


def test_little_that_is_new_waits_but_not_for_ever() -> None:
    world = World()
    world.append(1)
    assert world.look() == ""
    assert world.look(3599) == ""
    assert world.look(1) == "1 new records have waited 3600 s"


def test_what_a_round_found_when_it_began_is_covered_and_what_came_later_is_not() -> None:
    world = World()
    world.append(5000)
    assert world.look()
    world.start()
    world.say("running")
    begin = world.wall
    world.append(700)
    world.look(60)
    world.append(7)
    world.look(60)
    assert world.decider.new_records == 5707
    world.say("idle", [RoundSummary(begin=begin, end=world.wall)])
    assert world.look() == ""
    assert world.decider.new_records == 707


def test_a_round_that_began_and_ended_between_two_looks_counts_too() -> None:
    world = World()
    world.append(5000)
    world.look()
    world.say("idle", [RoundSummary(begin=world.wall + 100, end=world.wall + 200)])
    world.look()
    assert world.decider.new_records == 0


def test_a_round_that_failed_or_was_stopped_covers_nothing() -> None:
    world = World()
    world.append(5000)
    world.look()
    world.say("ended", [RoundSummary(begin=world.wall, end=world.wall, error="no")])
    assert world.look()
    world.say("ended", [RoundSummary(begin=world.wall, end=world.wall, stopped=True)])
    assert world.look()
    assert world.decider.new_records == 5000


def test_the_longest_round_is_remembered_from_its_beginning() -> None:
    world = World()
    world.append(5000)
    world.look()
    world.say("running")
    begin = world.wall
    for _ in range(1000):
        world.append(1)
        world.look()
    world.say("idle", [RoundSummary(begin=begin, end=world.wall)])
    world.look()
    assert world.decider.new_records == 1000


# --- after a restart of the server ----------------------------------------------------------------------------


def lake(heads: int, behind: int = 0, erasures: int = 0) -> PipelineStatus:
    return PipelineStatus(rounds=[RoundSummary(begin=1, end=2)], lag=Lag(heads=heads, behind=behind, erasures=erasures))


def test_what_the_lake_has_already_is_not_new() -> None:
    world = World(status=lake(5000))
    world.append(5000)
    assert world.look(DAY) == ""
    assert world.decider.new_records == 0


def test_what_it_does_not_have_is() -> None:
    world = World(status=lake(5000, behind=1000))
    world.append(5300)
    assert world.look() == "1300 new records"


def test_everything_is_new_to_a_lake_whose_first_round_failed() -> None:
    world = World(status=PipelineStatus(rounds=[RoundSummary(begin=1, end=2, error="no")]))
    world.append(5000)
    assert world.look() == "5000 new records"


def test_a_log_that_is_gone_is_something_new() -> None:
    world = World(status=lake(5000))
    world.append(4000)
    world.look()
    assert world.decider.new_records == 1
    assert world.look(3600)


# --- erasures, schemas, and being asked -----------------------------------------------------------------------


def test_erasures_wait_less_long() -> None:
    world = World(status=lake(0))
    world.erase()
    world.look()
    assert world.look(ERASE_SECONDS - 1) == ""
    assert world.look(1) == "1 erasures are not applied to the lake"


def test_where_there_is_no_lake_nothing_has_to_be_erased() -> None:
    world = World()
    world.erase()
    world.look()
    world.erase()
    assert world.look(DAY) == ""


def test_an_erasure_that_was_followed_is_done_with() -> None:
    world = World(status=lake(0))
    world.erase()
    world.look()
    world.round()
    assert world.look(DAY) == ""
    assert not world.decider.has_news


def test_another_schema_is_something_new_though_it_is_no_record() -> None:
    world = World(status=lake(0))
    world.look()
    world.reach = world.reach._replace(registries=77)
    world.look()
    assert world.decider.has_news
    assert world.look(3600)
    world.round()
    assert not world.decider.has_news


def test_it_is_started_when_it_is_asked_for_however_little_there_is() -> None:
    world = World()
    world.look()
    world.decider.ask()
    assert world.decider.why_start(world.tick) == "a run was requested"
    world.start()
    assert world.decider.why_start(world.tick) == ""


# --- the end --------------------------------------------------------------------------------------------------


def test_it_is_ended_when_it_has_had_nothing_to_do_for_a_while() -> None:
    world = World()
    world.append(5000)
    world.look()
    world.start()
    world.round()
    assert not world.decider.should_end(world.tick, world.status)
    world.look(119)
    assert not world.decider.should_end(world.tick, world.status)
    world.look(6)
    assert world.decider.should_end(world.tick, world.status)


def test_it_is_not_ended_in_the_middle_of_a_round() -> None:
    world = World()
    world.append(5000)
    world.look()
    world.start()
    world.say("running")
    world.look(DAY)
    assert not world.decider.should_end(world.tick, world.status)
    assert not world.decider.should_end(world.tick, None)


def test_a_trickle_does_not_keep_it() -> None:
    world = World()
    world.append(5000)
    world.look()
    world.start()
    for _ in range(12):
        world.append(10)
        world.round(1)
        world.look(10)
    assert world.decider.should_end(world.tick, world.status)


def test_a_flood_keeps_it() -> None:
    world = World()
    world.append(5000)
    world.look()
    world.start()
    for _ in range(100):
        world.append(2000)
        world.round(10)
        assert not world.decider.should_end(world.tick, world.status)


# --- failures -------------------------------------------------------------------------------------------------


def test_after_failures_it_waits_longer_and_longer_up_to_a_bound() -> None:
    world = World()
    world.append(5000)
    world.look()
    waits = []
    for _ in range(12):
        world.start()
        world.decider.ended(world.tick, well=False)
        waits.append(world.decider.wait_seconds(world.tick))
        assert world.look(waits[-1] - 0.01) == ""
        assert world.look(0.01)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, *[MAX_BACKOFF_SECONDS] * 3]


def test_a_good_round_makes_the_failures_forgotten() -> None:
    world = World()
    world.append(5000)
    world.look()
    for _ in range(5):
        world.decider.ended(world.tick, well=False)
    world.round()
    world.decider.ended(world.tick, well=False)
    assert world.decider.wait_seconds(world.tick) == 1


def test_who_asks_for_it_does_not_have_to_wait() -> None:
    world = World()
    world.look()
    for _ in range(20):
        world.decider.ended(world.tick, well=False)
    world.decider.ask()
    assert world.decider.why_start(world.tick)


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from(["look", "round", "fail"])), max_size=60))
def test_what_is_new_is_never_overlooked(steps: list[tuple[int, str]]) -> None:
    """After any history of appends, rounds and failures, what no good round has covered is told as new."""
    world, covered = World(), 0
    world.look()
    for records, step in steps:
        world.append(records)
        world.look()
        if step == "round":
            covered = world.reach.records
            world.round()
        elif step == "fail":
            world.round(error="no")
        assert world.decider.new_records == world.reach.records - covered
    if world.reach.records > covered:
        assert world.look(3601)


@pytest.mark.parametrize("start_s", [0.0, 10.0])
def test_erasures_do_not_wait_longer_than_anything_else(start_s: float) -> None:
    eager = Thresholds(start_records=1000, start_bytes=1000, start_s=start_s, idle_s=1)
    world = World(eager, status=lake(0))
    world.erase()
    world.look()
    assert world.look(start_s)


def test_declared_tables_keep_the_pipeline_running() -> None:
    schedule = StartSchedule(Thresholds(start_records=1000, start_bytes=1000, start_s=3600, idle_s=1, lasting=True))
    schedule.see(0.0, 0, EngineExtent(), None)
    assert schedule.why_start(0.0) == "declared tables are kept current"
    schedule.started(0.0)
    assert not schedule.should_end(1000.0, PipelineStatus(state="idle"))
    schedule.ended(1000.0, well=False)
    assert schedule.why_start(1000.5) == ""
    assert schedule.why_start(1001.0) == "declared tables are kept current"
