from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.scheduler import AGE_LIMIT_MS, AGING_TICK_MS, BANDS, Scheduler

NOW = 1_700_000_000_000
#: One priority of each band, the most urgent first.
OF_BANDS = (900, 600, 300, 10, -50)


class Job:
    def __init__(self, name: str, urgency: int) -> None:
        self.name = name
        self.urgency = urgency

    def __repr__(self) -> str:
        return self.name

    def priority(self, now: int) -> int:
        return self.urgency

    def run(self) -> None: ...


def jobs(urgency: int, count: int) -> list[Job]:
    return [Job(f"{urgency}/{number}", urgency) for number in range(count)]


def submitted(*groups: list[Job], now: int = NOW) -> Scheduler:
    scheduler = Scheduler()
    for group in groups:
        for job in group:
            scheduler.submit(job, now)
    return scheduler


def taken(scheduler: Scheduler, count: int | None = None, now: int = NOW) -> list[Job]:
    found: list[Job] = []
    while count is None or len(found) < count:
        job = scheduler.take(now)
        if job is None:
            break
        assert isinstance(job, Job)
        found.append(job)
    return found


def test_with_nothing_to_do_there_is_nothing_to_take() -> None:
    assert Scheduler().take(NOW) is None


def test_within_a_band_who_comes_first_is_served_first() -> None:
    first, second = jobs(10, 3), jobs(20, 3)
    assert taken(submitted(first, second)) == first + second


def test_urgent_tasks_go_first_although_they_came_last() -> None:
    idle, urgent = jobs(0, 100), jobs(900, 8)
    assert taken(submitted(idle, urgent), 8) == urgent


def test_under_load_every_band_has_its_share_and_nobody_starves() -> None:
    scheduler = submitted(*(jobs(urgency, 100) for urgency in OF_BANDS))
    turns = 5
    shares = Counter(job.urgency for job in taken(scheduler, turns * sum(weight for _, weight in BANDS)))
    assert shares == {urgency: turns * weight for urgency, (_, weight) in zip(OF_BANDS, BANDS, strict=True)}


def test_a_stream_of_urgent_tasks_does_not_keep_the_others_from_their_turn() -> None:
    scheduler = submitted(jobs(-900, 1))
    done: list[int] = []
    for number in range(100):
        scheduler.submit(Job(f"urgent {number}", 1000), NOW)
        job = scheduler.take(NOW)
        assert isinstance(job, Job)
        done.append(job.urgency)
        scheduler.submit(Job(f"more {number}", 1000), NOW)
    assert done.count(-900) == 1
    assert done.index(-900) <= sum(weight for _, weight in BANDS)


def test_a_task_that_waits_already_is_not_done_twice() -> None:
    (job,) = jobs(10, 1)
    scheduler = submitted([job, job, job])
    assert len(scheduler) == 1
    assert taken(scheduler) == [job]
    scheduler.submit(job, NOW)
    assert taken(scheduler) == [job]


def test_a_task_that_was_withdrawn_is_not_done() -> None:
    some = jobs(10, 3)
    scheduler = submitted(some)
    scheduler.withdraw(some[1])
    scheduler.withdraw(Job("a stranger", 0))
    assert len(scheduler) == 2
    assert taken(scheduler) == [some[0], some[2]]
    assert scheduler.take(NOW) is None


def test_a_task_that_was_withdrawn_and_submitted_again_is_done_once() -> None:
    (job,) = jobs(10, 1)
    scheduler = submitted([job])
    scheduler.withdraw(job)
    scheduler.submit(job, NOW)
    assert taken(scheduler) == [job]
    assert len(scheduler) == 0


def test_whoever_waits_climbs_above_what_came_later() -> None:
    old, young = jobs(0, 1), jobs(300, 50)
    scheduler = submitted(old)
    later = NOW + 6_000
    for job in young:
        scheduler.submit(job, later)
    assert taken(scheduler, 1, later) == old


def test_even_the_least_urgent_gets_to_the_top_in_the_end() -> None:
    old = jobs(-100, 1)
    scheduler = submitted(old)
    later = NOW + AGE_LIMIT_MS
    before, behind = jobs(900, 20), jobs(900, 20)
    for job in before:
        scheduler.submit(job, later)
    first = taken(scheduler, 1, later)
    for job in behind:
        scheduler.submit(job, later)
    assert first + taken(scheduler, now=later) == before + old + behind


def test_those_who_wait_are_looked_at_only_now_and_then() -> None:
    scheduler = submitted(jobs(0, 2), jobs(0, 1))
    taken(scheduler, 1, NOW)
    asked: list[int] = []

    class Curious(Job):
        def priority(self, now: int) -> int:
            asked.append(now)
            return 0

    scheduler.submit(Curious("curious", 0), NOW)
    asked.clear()
    taken(scheduler, 1, NOW + AGING_TICK_MS - 1)
    assert asked == []
    taken(scheduler, 1, NOW + AGING_TICK_MS)
    assert asked == [NOW + AGING_TICK_MS]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("submit"), st.integers(0, 9)),
            st.tuples(st.just("withdraw"), st.integers(0, 9)),
            st.tuples(st.just("take"), st.integers(0, 3_000)),
        )
    ),
    st.lists(st.integers(-1000, 1000), min_size=10, max_size=10),
)
def test_everything_that_waits_is_done_once_and_nothing_else_is(
    steps: list[tuple[str, int]], urgencies: list[int]
) -> None:
    everybody = [Job(str(number), urgency) for number, urgency in enumerate(urgencies)]
    scheduler, waiting, now = Scheduler(), set[Job](), NOW
    for what, number in steps:
        if what == "submit":
            scheduler.submit(everybody[number], now)
            waiting.add(everybody[number])
        elif what == "withdraw":
            scheduler.withdraw(everybody[number])
            waiting.discard(everybody[number])
        else:
            now += number
            job = scheduler.take(now)
            assert (job is None) == (not waiting)
            if job is not None:
                assert isinstance(job, Job)
                waiting.remove(job)
        assert len(scheduler) == len(waiting)
    assert set(taken(scheduler, now=now)) == waiting
