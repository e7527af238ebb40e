"""Aggregation against what the rules plainly say, record by record."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.searched_log import CONFIG, Aggregated, Bed, bed

from strandline.query import aggregate
from strandline.query import index as indexing
from strandline.query.bound import bind_search
from strandline.query.config_parser import parse_search_config
from strandline.query.errors import BadQuery
from strandline.query.language import parse
from strandline.query.matcher import matcher
from strandline.query.values import values_of

START = 1_767_225_600_000


def shown(result: Aggregated) -> list[dict[str, Any]]:
    return [
        {
            "start": bucket.start_ms,
            "groups": [{"key": group.key, "measures": group.measures} for group in bucket.groups],
        }
        for bucket in result.buckets
    ]


def text_of(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def matches(query: str, document: object) -> bool:
    return matcher(bind_search(parse(query), CONFIG))(document, 1)


def naive(documents: list[Any], first: int, end: int, interval: int, query: str | None, group_by: list[str]) -> Any:
    """The rollup ``requests``, as the rules read."""
    buckets: dict[int, dict[str, Any]] = {}
    for document in documents:
        if not isinstance(document, dict) or not matches("NOT tag:ignored", document):
            continue
        if query is not None and not matches(query, document):
            continue
        found = {name: values_of(field, document, 1) for name, field in CONFIG.fields.items()}
        if len(found["at"]) != 1 or not first <= found["at"][0] < end:
            continue
        if any(len(found[name]) > 1 for name in ("service", "ok", "status")):
            continue
        if len(found["took"]) != 1 or len(found["status"]) != 1:
            continue
        key = {name: text_of(found[name][0] if found[name] else None) for name in sorted(group_by)}
        start = found["at"][0] // interval * interval
        group = buckets.setdefault(start, {}).setdefault(
            json.dumps(key, separators=(",", ":"), ensure_ascii=False), {"key": key, "took": [], "status": []}
        )
        group["took"] += found["took"]
        group["status"] += found["status"]
    return [
        {"start": start, "groups": [measured(buckets[start][key]) for key in sorted(buckets[start])]}
        for start in sorted(buckets)
    ]


def measured(group: dict[str, Any]) -> dict[str, Any]:
    took, status = group["took"], group["status"]
    histogram = Counter(bucket_of(value) for value in took)
    measures = {
        "requests": {"count": len(took)},
        "errors": {"count": sum(value >= 500 for value in status)},
        "latency": {
            **summary(took),
            **{name: percentile(histogram, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))},
            "histogram": {str(bucket): histogram[bucket] for bucket in sorted(histogram)},
        },
        "codes": {**summary(status), "p50": None, "p95": None, "p99": None},
    }
    return {"key": group["key"], "measures": measures}


def summary(values: list[Any]) -> dict[str, Any]:
    total = sum(values)
    return {
        "count": len(values), "sum": total, "min": min(values), "max": max(values), "avg": total / len(values),
    }  # fmt: skip


def bucket_of(value: float) -> int:
    return 1 << int(max(1, abs(value))).bit_length() - 1


def percentile(histogram: Counter[int], share: float) -> int:
    wanted, reached = share * histogram.total(), 0
    for bucket in sorted(histogram):
        reached += histogram[bucket]
        if reached >= wanted:
            return bucket
    raise AssertionError


#: Binary fractions, so that sums are the same in any order.
numbers = st.one_of(st.integers(-(2**40), 2**40), st.sampled_from([0.5, 0.25, 1.75, 1023, 1024, 1025, -64.5]))
documents = st.one_of(
    st.just(5),
    st.fixed_dictionaries(
        {
            "at": st.one_of(st.integers(START, START + 5000), st.lists(st.just(START), max_size=2)),
            "took": st.one_of(numbers, st.lists(numbers, max_size=2)),
            "status": st.one_of(
                st.sampled_from([200, 500, 503, 2**62, 2**62 - 1, -(2**62), 2**53 + 1, 2**80]), st.none()
            ),
        },
        optional={
            "service": st.sampled_from(["Api", "api", "wéb", ["a", "b"], 5, 'quo"ted']),
            "ok": st.booleans(),
            "tags": st.sampled_from(["ignored", "kept"]),
            "note": st.sampled_from(["red", "gold"]),
        },
    ),
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(documents, max_size=25),
    st.integers(START - 1000, START + 3000),
    st.integers(1, 6000),
    st.sampled_from(["1s", "1m"]),
    st.sampled_from([None, "note:red", "service:api", "NOT ok:true"]),
    st.lists(st.sampled_from(["service", "ok", "status"]), max_size=3),
)
def test_groups_are_what_the_rules_say(found, first, length, interval, query, group_by):
    with TemporaryDirectory() as path, bed(Path(path)) as logs:
        for start in range(0, len(found), 9):
            logs.append(*found[start : start + 9])
            logs.search("red")
        body = {"rollup": "requests", "from": first, "to": first + length, "interval": interval, "group_by": group_by}
        result = logs.aggregate(**body, **({} if query is None else {"q": query}))
    milliseconds = {"1s": 1000, "1m": 60_000}[interval]
    expected = naive(found, first, first + length, milliseconds, query, group_by)
    assert shown(result) == expected


def ask(logs: Bed, **body: Any) -> Aggregated:
    return logs.aggregate(**{"rollup": "requests", "from": START, "to": START + 60_000, "interval": "1m", **body})


def record(**settings: Any) -> dict[str, Any]:
    return {"at": START, "service": "api", "status": 200, "took": 120, **settings}


def test_the_example_of_the_protocol(logs: Bed) -> None:
    logs.append(record())
    (bucket,) = ask(logs, group_by=["service"], measures=["latency", "requests"]).buckets
    assert (bucket.start_ms, bucket.end_ms) == (START, START + 60_000)
    (group,) = bucket.groups
    assert group.key == {"service": "api"}
    assert group.measures == {
        "latency": {
            "count": 1, "sum": 120, "min": 120, "max": 120, "avg": 120, "p50": 64, "p95": 64, "p99": 64,
            "histogram": {"64": 1},
        },
        "requests": {"count": 1},
    }  # fmt: skip
    assert list(group.measures) == ["latency", "requests"]


def test_sums_of_integers_are_exact(logs: Bed) -> None:
    logs.append(*[record(status=2**62 + number) for number in range(5)], record(status=10**30))
    codes = ask(logs).buckets[0].groups[0].measures["codes"]
    assert codes["sum"] == 5 * 2**62 + 10 + 10**30
    assert (codes["min"], codes["max"], codes["count"]) == (2**62, 10**30, 6)


def test_a_record_without_a_summed_number_counts_for_nothing(logs: Bed) -> None:
    incomplete = record()
    del incomplete["took"]
    logs.append(record(), incomplete, record(took="none"), record(took=[1, 2]))
    assert ask(logs, measures=["requests"]).buckets[0].groups[0].measures == {"requests": {"count": 1}}


def test_a_count_that_includes_nothing_still_makes_its_group(logs: Bed) -> None:
    logs.append(record())
    assert ask(logs, measures=["errors"]).buckets[0].groups[0].measures == {"errors": {"count": 0}}


def test_the_range_includes_its_start_and_not_its_end_and_buckets_are_whole(logs: Bed) -> None:
    logs.append(*[record(at=START + second * 1000) for second in range(180)])
    result = ask(logs, **{"from": START + 30_000, "to": START + 150_000}, measures=["requests"])
    assert [(bucket.start_ms, bucket.end_ms) for bucket in result.buckets] == [
        (START, START + 60_000),
        (START + 60_000, START + 120_000),
        (START + 120_000, START + 180_000),
    ]
    assert [bucket.groups[0].measures["requests"]["count"] for bucket in result.buckets] == [30, 60, 30]


def test_empty_buckets_are_absent(logs: Bed) -> None:
    logs.append(record(), record(at=START + 10_000))
    assert [bucket.start_ms for bucket in ask(logs, interval="1s").buckets] == [START, START + 10_000]
    assert ask(logs, **{"from": START + 1000, "to": START + 2000}).buckets == []


def test_missing_dimensions_are_null_and_groups_are_sorted_by_their_keys(logs: Bed) -> None:
    absent = record()
    del absent["service"]
    logs.append(record(service="web"), absent, record(service="Api"), record(service="null"))
    groups = ask(logs, group_by=["service"], measures=["requests"]).buckets[0].groups
    assert [group.key["service"] for group in groups] == ["api", "null", "web", None]


def part(count: float, total: float, least: float, greatest: float, buckets: Any = None) -> dict[str, Any]:
    summary = {"count": count, "sum": total, "min": least, "max": greatest}
    return {"at": START, "service": "api", "p": {**summary, **({} if buckets is None else {"buckets": buckets})}}


def test_parts_of_summaries_are_merged(logs: Bed) -> None:
    logs.append(
        part(2, 10, 4, 6, {"4": 2}),
        part(1, 8.5, 8.5, 8.5, {"8": 1, "bad": "x", "0": 0}),
        part(1, 1, 1, 1),
        {"at": START, "p": {"count": 1, "sum": 1, "min": None, "max": 1}},
        {"at": START, "p": 5},
    )
    (group,) = ask(logs, rollup="parts", interval="1s").buckets[0].groups
    assert group.measures["value"] == {
        "count": 4, "sum": 19.5, "min": 1, "max": 8.5, "avg": 4.875, "p50": 4, "p95": 8, "p99": 8,
        "histogram": {"4": 2, "8": 1},
    }  # fmt: skip


def test_parts_are_the_same_in_bulk(logs: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(3)
    documents = [
        part(pick.randrange(5), pick.randrange(99), 1, 9, {str(2 ** pick.randrange(5)): 1}) for _ in range(700)
    ]
    logs.append(*documents)
    in_bulk = shown(ask(logs, rollup="parts", interval="1s", group_by=["service"]))
    monkeypatch.setattr(indexing, "BATCH_ROWS", 50)
    logs.searcher.forget(logs.log)
    assert shown(ask(logs, rollup="parts", interval="1s", group_by=["service"])) == in_bulk
    value = in_bulk[0]["groups"][0]["measures"]["value"]
    assert value["sum"] == sum(document["p"]["sum"] for document in documents)
    assert sum(value["histogram"].values()) == 700


def test_deleted_records_do_not_contribute(logs: Bed) -> None:
    logs.append(record(), record(), record())
    ask(logs)
    logs.log.delete(seqs=[2]).wait()
    assert ask(logs, measures=["requests"]).buckets[0].groups[0].measures["requests"]["count"] == 2


def test_coverage_tells_what_was_not_reached(logs: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "BATCH_ROWS", 1)
    logs.append(record(), record())
    late = ask(logs, patience=-1)
    assert late.buckets[0].groups[0].measures["requests"]["count"] == 1
    assert (late.coverage.mode, late.coverage.complete, late.coverage.missing) == ("published", False, 1)
    full = ask(logs).coverage
    assert (full.mode, full.complete, full.caught_up, full.chunks) == ("complete", True, 1, 1)
    assert full.families == ("col", "exact")
    assert ask(logs, **{"from": START + 1, "to": START + 2}).coverage.chunks == 0


def test_more_groups_than_anybody_reads_are_refused(logs: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "MAX_GROUPS", 3)
    logs.append(*[record(service=f"s{number}") for number in range(4)])
    with pytest.raises(BadQuery, match="the result has 4 groups; the limit is 3"):
        ask(logs, group_by=["service"])
    assert len(ask(logs).buckets[0].groups) == 1


def test_a_changed_include_counts_at_once(tmp_path) -> None:
    with bed(tmp_path) as logs:
        logs.append(record(status=404))
        assert ask(logs, measures=["errors"]).buckets[0].groups[0].measures == {"errors": {"count": 0}}
        declared = json.loads(json.dumps(CONFIG.declared))
        declared["rollups"]["requests"]["measures"]["errors"]["include"] = "status:>=400"
        logs.config = parse_search_config(declared)
        assert ask(logs, measures=["errors"]).buckets[0].groups[0].measures == {"errors": {"count": 1}}
        assert len(logs.searcher.indexes) == 1
