from __future__ import annotations

from support.searched_log import DECLARED, Bed

from strandline.query.config_parser import parse_search_config


def held_of(logs: Bed):
    return logs.searcher.held(logs.log, logs.config)


def test_before_anybody_asks_nothing_is_held_and_telling_so_indexes_nothing(logs: Bed) -> None:
    logs.append({"status": 200})
    held = held_of(logs)
    assert (held.after, held.through, held.chunks, held.size, held.is_stale) == (0, 0, 0, 0, False)
    assert len(logs.searcher.indexes) == 0


def test_what_a_search_has_indexed_is_held_with_its_size_by_field(logs: Bed) -> None:
    logs.append({"status": 200, "service": "api"}, {"status": 500})
    before = logs.searcher.indexes.changes
    logs.search("status:200")
    held = held_of(logs)
    assert (held.after, held.through, held.chunks) == (0, 2, 1)
    assert held.sizes["status"] > 0
    assert held.sizes["service"] > 0
    assert held.size == sum(held.sizes.values())
    assert logs.searcher.indexes.changes != before


def test_removed_records_leave_the_rest_held_and_ones_that_come_back_do_not(logs: Bed) -> None:
    logs.append({"status": 200}, {"status": 500})
    logs.search("status:200")
    logs.log.hide(seqs=[1]).wait()
    assert held_of(logs).through == 2
    logs.log.restore(seqs=[1]).wait()
    assert held_of(logs).through == 0
    logs.search("status:500")
    assert held_of(logs).through == 2


def test_an_index_for_an_earlier_configuration_makes_the_new_one_stale_until_it_is_used(logs: Bed) -> None:
    logs.append({"status": 200})
    logs.search("status:200")
    fields = {name: field for name, field in DECLARED["fields"].items() if name != "title"}
    logs.config = parse_search_config({**DECLARED, "fields": fields})
    assert held_of(logs).is_stale
    logs.search("status:200")
    assert not held_of(logs).is_stale


def test_a_forgotten_log_holds_nothing(logs: Bed) -> None:
    logs.append({"status": 200})
    logs.search("status:200")
    before = logs.searcher.indexes.changes
    logs.searcher.forget(logs.log)
    assert held_of(logs).through == 0
    assert logs.searcher.indexes.changes != before
