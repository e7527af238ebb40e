"""Search over whole logs: complete, fresh, in order, and truthful about what it could not look at."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from support.searched_log import CONFIG, Bed, bed, binding, declared

from strandline.engine import Batch
from strandline.engine.errors import UnknownLog
from strandline.query import index as indexing
from strandline.query.bound import bind_search
from strandline.query.config_parser import parse_search_config
from strandline.query.errors import BadQuery
from strandline.query.language import parse
from strandline.query.matcher import matcher
from strandline.query.values import values_of


def random_documents(count: int, seed: int) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    documents = []
    for number in range(count):
        document: dict[str, Any] = {"status": pick.choice([200, 200, 404, 503, None, "503", [404, 200]])}
        if pick.random() < 0.8:
            document["service"] = pick.choice(["Api", "web", "db", ["web", "db"]])
        if pick.random() < 0.7:
            document["took"] = pick.choice([0.5, 1, 2.25, -3])
        if pick.random() < 0.9:
            document["at"] = f"2026-01-01T00:{pick.randrange(60):02d}:{number % 60:02d}Z"
        document["note"] = " ".join(pick.choices(["red", "green", "blue", "gold"], k=pick.randrange(4)))
        documents.append(document)
    return documents


QUERIES = [
    "status:503",
    "red",
    "NOT red",
    "status:>=404 service:web",
    'note:"red green" OR took:<0',
    "has:at gold",
    "svc:w*",
]
SORTS = [
    [], ["offset:asc"], ["status:asc"], ["status:desc", "took:asc"], ["service", "offset:asc"], ["at:asc"],
    ["_score:asc", "at"], ["took:asc", "service:desc", "status"],
]  # fmt: skip


@pytest.mark.parametrize("sort", SORTS, ids=map(str, SORTS))
@pytest.mark.parametrize("query", QUERIES)
def test_pages_have_all_hits_in_order(logs: Bed, query: str, sort: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_CHUNK_ROWS", 40)
    documents = random_documents(130, seed=len(query))
    for start in range(0, len(documents), 37):
        logs.append(*documents[start : start + 37])
        logs.search("red")
    matches = matcher(bind_search(parse(query), CONFIG))
    expected = {seq for seq, document in enumerate(documents, 1) if matches(document, 1)}
    found = logs.pages(query, sort=sort, size=11)
    assert len(found) == len(set(found))
    assert set(found) == expected
    everything = logs.search(query, sort=sort, size=500)
    assert [hit.seq for hit in everything.hits] == found
    assert everything.relation == "eq"
    check_order(everything.hits, documents, sort)


def check_order(hits: list[Any], documents: list[dict[str, Any]], sort: list[str]) -> None:
    """That no hit should stand before the one in front of it, by what the keys say."""
    keys = sort or ["_score:desc", "at:desc"]
    if not sort and all(hit.score == 0 for hit in hits):
        keys = []
    if all(not key.startswith("offset") for key in keys):
        keys = [*keys, "offset:desc"]

    def value(hit: Any, name: str) -> Any:
        if name == "offset":
            return hit.seq
        if name == "_score":
            return hit.score
        found = values_of(CONFIG.fields[name], documents[hit.seq - 1], 1)
        return found[0] if found else None

    for one, next_one in pairwise(hits):
        for key in keys:
            name, _, direction = key.partition(":")
            left, right = value(one, name), value(next_one, name)
            if left == right:
                continue
            if left is None or right is None:
                assert right is None, "what has no value comes last"
            else:
                assert (left < right) == (direction == "asc")
            break


def test_a_record_is_found_as_soon_as_it_is_appended(logs: Bed) -> None:
    for number in range(1, 30):
        logs.append({"status": number, "note": f"word{number}"})
        assert logs.seqs(f"status:{number}") == [number]
        assert logs.seqs(f"word{number}") == [number]
    assert logs.seqs("has:status", sort=["status:asc"]) == list(range(1, 30))


def test_hits_show_the_record_its_fields_and_where_to_go_on(logs: Bed) -> None:
    logs.append({"service": "Api", "tags": ["a", "b"], "status": None, "note": "red", "other": 1})
    result = logs.search("service:api", size=1)
    (hit,) = result.hits
    assert hit.fields == {"service": "Api", "tag": ["a", "b"], "note": "red"}
    assert hit.source == {"service": "Api", "tags": ["a", "b"], "status": None, "note": "red", "other": 1}
    assert hit.sort == (1,)
    assert result.next_after == (1,)
    assert result.relation == "gte"
    again = logs.search("service:api", size=1, search_after=["1"])
    assert (again.hits, again.next_after, again.relation) == ([], None, "eq")


def test_records_that_are_not_objects_are_passed_over(logs: Bed) -> None:
    logs.append(5, "text", [1], None, {"status": 1}, True)
    assert logs.seqs("status:1") == [5]
    assert logs.seqs("NOT status:2") == [5]
    assert logs.search("status:1").coverage.complete


def test_data_that_is_not_json_is_passed_over(logs: Bed) -> None:
    logs.log.append(Batch([b"\xff\xfe", b"{broken", b"", b'{"status":1}'])).wait()
    assert logs.seqs("NOT status:2") == [4]


def test_deleted_hidden_and_restored_records_are_seen_as_readers_see_them(logs: Bed) -> None:
    logs.append(*[{"status": number} for number in range(1, 7)])
    assert logs.seqs("has:status", sort=["offset:asc"]) == [1, 2, 3, 4, 5, 6]
    logs.log.delete(seqs=[2]).wait()
    logs.log.hide(seqs=[4]).wait()
    assert logs.seqs("has:status", sort=["offset:asc"]) == [1, 3, 5, 6]
    logs.log.restore(seqs=[4]).wait()
    logs.log.amend(6, b'{"status":60}').wait()
    logs.append({"status": 7})
    assert logs.seqs("has:status", sort=["offset:asc"]) == [1, 3, 4, 5, 6, 7]
    assert logs.seqs("status:60") == [6]
    assert logs.seqs("status:6") == []
    logs.log.delete(before=4).wait()
    assert logs.seqs("has:status", sort=["offset:asc"]) == [4, 5, 6, 7]


def test_sealed_records_and_fresh_ones_are_searched_together(logs: Bed) -> None:
    logs.append(*[{"status": number} for number in range(1, 400)])
    logs.engine.maintain()
    logs.append({"status": 400})
    assert logs.seqs("status:>=398", sort=["offset:asc"]) == [398, 399, 400]
    fresh = Bed.__new__(Bed)
    fresh.__dict__.update(logs.__dict__)
    assert fresh.seqs("status:1") == [1]


def test_each_record_is_read_by_the_binding_of_its_own_version(tmp_path) -> None:
    fields = {"shop": declared("keyword", "/shop", bindings=[binding("/shop", 1), binding("/store", 3)])}
    with bed(tmp_path, parse_search_config({"fields": fields})) as logs:
        logs.versions = [(1, 1)]
        logs.append({"shop": "a"}, {"shop": "a", "store": "b"})
        assert logs.seqs("shop:a") == [2, 1]
        logs.versions = [(1, 1), (3, 2), (4, 3)]
        logs.append({"shop": "a"}, {"shop": "b", "store": "a"})
        result = logs.search("shop:a")
        assert [hit.seq for hit in result.hits] == [4, 3, 2, 1]
        assert result.hits[0].fields == {"shop": "a"}
        assert logs.seqs("shop:b") == []
        logs.versions = [(1, 1), (2, 3)]
        assert logs.seqs("shop:b") == [2]


def test_records_of_a_log_without_a_schema_have_the_fields_of_version_1(tmp_path) -> None:
    fields = {
        "shop": declared("keyword", "/shop", bindings=[binding("/shop", 1), binding("/store", 2)]),
        "later": declared("keyword", "/store", bindings=[binding("/store", 2)]),
    }
    with bed(tmp_path, parse_search_config({"fields": fields})) as logs:
        logs.versions = []
        logs.append({"shop": "a", "store": "b"}, {"shop": "b"})
        assert logs.seqs("shop:b") == [2]
        assert logs.seqs("has:later") == []


def test_another_configuration_has_another_index(logs: Bed) -> None:
    logs.append({"status": 1, "code": 2})
    assert logs.seqs("status:1") == [1]
    logs.config = parse_search_config({"fields": {"status": declared("integer", "/code")}})
    assert logs.seqs("status:1") == []
    assert logs.seqs("status:2") == [1]
    assert len(logs.searcher.indexes) == 2
    logs.searcher.forget(logs.log)
    assert len(logs.searcher.indexes) == 0


def test_nothing_is_kept_of_a_log_that_is_dropped(logs: Bed) -> None:
    logs.append({"status": 1})
    logs.search("status:1")
    logs.searcher.forget(logs.log)
    logs.log.drop().wait()
    with pytest.raises(UnknownLog):
        logs.search("status:1")
    assert len(logs.searcher.indexes) == 0


def test_without_time_there_is_a_valid_answer_with_hits_that_says_so(
    logs: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "BATCH_ROWS", 2)
    logs.append(*[{"status": 1}] * 5)
    result = logs.search("status:1", patience=0)
    assert [hit.seq for hit in result.hits] == [2, 1]
    assert result.relation == "gte"
    coverage = result.coverage
    assert (coverage.timed_out, coverage.complete, coverage.mode) == (True, False, "published")
    assert (coverage.head, coverage.through, coverage.missing) == (5, 2, 3)
    assert coverage.omitted_ts == logs.log.read(2, 1).ts[0]
    logs.search("status:1")
    late = logs.search("status:1", patience=-1).coverage
    assert (late.timed_out, late.complete, late.mode, late.missing) == (True, False, "complete", 0)


def test_coverage_says_what_was_used(logs: Bed) -> None:
    empty = logs.search("status:1").coverage
    assert (empty.head, empty.complete, empty.families, empty.chunks) == (0, True, (), 0)
    logs.append({"status": 1, "note": "red", "at": "2026-03-25T10:18:23.123Z"}, {"at": "2026-03-25T10:18:23.122Z"})
    first = logs.search("status:1").coverage
    assert (first.caught_up, first.chunks, first.families, first.missing) == (2, 1, ("exact",), 0)
    assert first.primary_timestamp == 1774433903123
    assert (first.head, first.through, first.omitted_ts, first.mode) == (2, 2, None, "complete")
    assert logs.search("status:>1").coverage.caught_up == 0
    assert logs.search("status:>1").coverage.families == ("col",)
    assert logs.search("red").coverage.families == ("col", "exact", "fts")
    assert logs.search("note:red", sort=["offset"]).coverage.families == ("fts",)


def test_too_large_an_index_keeps_the_newest_records_and_says_so(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_CHUNK_ROWS", 100)
    monkeypatch.setattr(indexing, "BATCH_ROWS", 50)
    with bed(tmp_path, budget=1) as logs:
        logs.append(*[{"status": number} for number in range(1000)])
        logs.search("status:0")
        result = logs.search("status:>=0", size=500)
        assert 0 < len(result.hits) <= 100
        assert result.hits[0].seq == 1000
        assert result.coverage.missing == 1000 - len(result.hits)
        assert not result.coverage.complete
        assert result.relation == "gte"


def test_indexes_that_were_not_used_for_longest_go_first(tmp_path) -> None:
    with bed(tmp_path) as logs:
        logs.append(*[{"status": number} for number in range(500)])
        logs.search("status:0")
        one = logs.searcher.indexes.nbytes
    with bed(tmp_path / "other", budget=2 * one) as logs:
        logs.append(*[dict.fromkeys("abcd", number) for number in range(500)])
        for pointer in ("/a", "/b", "/c", "/d"):
            fields = {name: each for name, each in CONFIG.declared["fields"].items() if name != "status"}
            logs.config = parse_search_config(
                {**CONFIG.declared, "fields": {**fields, "status": declared("integer", pointer)}}
            )
            logs.search("has:note")
        assert 1 <= len(logs.searcher.indexes) < 4
        assert logs.searcher.indexes.nbytes <= 2 * one


def test_paging_by_score_misses_nothing_while_records_are_appended(logs: Bed) -> None:
    logs.append(*[{"note": f"red {'gold ' * (number % 7)}"} for number in range(64)])
    found, after = [], {}
    for _ in range(7):
        result = logs.search("red gold", size=10, **after)
        found += [hit.seq for hit in result.hits]
        logs.append({"note": "green"})
        if result.next_after is None:
            break
        after = {"search_after": [*result.next_after[:-1], str(result.next_after[-1])]}
    assert sorted(found) == [seq for seq in range(1, 65) if (seq - 1) % 7]


def test_forks_and_what_was_appended_meanwhile_do_not_mix(logs: Bed) -> None:
    logs.append({"status": 1}, {"status": 2})
    fork = logs.engine.fork("fork", logs.log, 1).wait()
    logs.append({"status": 3})
    fork.append(Batch([b'{"status":30}'])).wait()
    other = Bed.__new__(Bed)
    other.__dict__.update(logs.__dict__, log=fork)
    assert logs.seqs("has:status") == [3, 2, 1]
    assert other.seqs("has:status") == [2, 1]
    assert other.seqs("status:30") == [2]


def test_unknown_fields_are_refused_before_anything_is_read(logs: Bed) -> None:
    with pytest.raises(BadQuery, match="unknown search field nothing"):
        logs.search("nothing:1")


def test_pages_go_on_where_no_record_has_a_value_for_the_sort_key(logs: Bed) -> None:
    logs.append(*[{"status": 200}] * 5)
    assert logs.pages("status:200", sort=["service"], size=2) == [5, 4, 3, 2, 1]
    logs.append({"status": 200, "service": "api"})
    assert logs.pages("status:200", sort=["service"], size=2) == [6, 5, 4, 3, 2, 1]


def test_the_first_of_very_many_are_found_whatever_their_values(logs: Bed) -> None:
    pick = random.Random(5)
    documents = [{"status": pick.choice([1, 2, pick.randrange(10**6)]), "took": pick.random()} for _ in range(12_000)]
    logs.append(*documents)
    for sort, key in ((["took:asc"], "took"), (["status:asc"], "status"), (["status"], "status")):
        found = [hit.seq for hit in logs.search("has:status", sort=sort, size=500).hits]
        # Of those that are level the last comes first.
        ordered = sorted(range(12_000, 0, -1), key=lambda seq: documents[seq - 1][key], reverse=len(sort[0]) == 6)
        assert found == ordered[:500]
