from __future__ import annotations

from strandline.delivery.queues import Claimed
from strandline.delivery.queues.leases import QueueWorker, WorkerLeases


class Hand(QueueWorker):
    def take(self, jobs: list[Claimed]) -> None:
        raise NotImplementedError

    def held_back(self, milliseconds: int) -> None:
        raise NotImplementedError

    def dismiss(self, gone: bool) -> None:
        raise NotImplementedError


def hand(name: str) -> Hand:
    return Hand(name, 3, None)


def give(holdings: WorkerLeases, worker: QueueWorker, deadlines: dict[int, int]) -> None:
    leases = {seq: f"lease_{worker.node}{seq}" for seq in deadlines}
    jobs = [Claimed(seq, 0, None, None, None, b"", leases[seq], until, 1, 0) for seq, until in deadlines.items()]
    holdings.add(worker, jobs, leases)


def test_a_worker_is_free_for_what_it_neither_holds_nor_expects() -> None:
    holdings, ann = WorkerLeases(), hand("ann")
    give(holdings, ann, {1: 100})
    ann.expected = 1
    assert ann.free == 1
    ann.paused = True
    assert ann.free == 0


def test_a_job_that_is_let_go_is_held_by_nobody() -> None:
    holdings, ann = WorkerLeases(), hand("ann")
    give(holdings, ann, {1: 100, 2: 100})
    assert holdings.let_go(1) is ann
    assert holdings.let_go(1) is None
    assert holdings.leases() == ann.held == {2: "lease_ann2"}


def test_a_job_that_is_given_to_another_worker_is_no_longer_held_by_the_first() -> None:
    holdings, ann, bob = WorkerLeases(), hand("ann"), hand("bob")
    give(holdings, ann, {1: 100})
    give(holdings, bob, {1: 200})
    assert ann.held == {}
    assert holdings.leases() == bob.held == {1: "lease_bob1"}


def test_a_worker_that_is_gone_leaves_all_its_leases() -> None:
    holdings, ann, bob = WorkerLeases(), hand("ann"), hand("bob")
    give(holdings, ann, {1: 100, 3: 100})
    give(holdings, bob, {2: 100})
    assert holdings.let_go_all(ann) == {1: "lease_ann1", 3: "lease_ann3"}
    assert ann.held == {}
    assert holdings.leases() == {2: "lease_bob2"}


def test_a_lease_ends_once_its_deadline_has_passed() -> None:
    holdings, ann, bob = WorkerLeases(), hand("ann"), hand("bob")
    give(holdings, ann, {1: 100})
    give(holdings, bob, {2: 50})
    assert holdings.next_deadline == 50
    assert list(holdings.end_leases(50)) == []
    assert list(holdings.end_leases(51)) == [bob]
    assert bob.held == {}
    assert holdings.next_deadline == 100
    assert list(holdings.end_leases(101)) == [ann]
    assert holdings.next_deadline is None


def test_an_extended_lease_ends_at_its_new_deadline_only() -> None:
    holdings, ann = WorkerLeases(), hand("ann")
    give(holdings, ann, {1: 100, 2: 100})
    holdings.extend({1: 300, 2: 60, 9: 10})
    assert list(holdings.end_leases(101)) == [ann]
    assert holdings.leases() == {1: "lease_ann1"}
    assert list(holdings.end_leases(301)) == [ann]
    assert holdings.leases() == {}
