from __future__ import annotations

from pathlib import Path
from time import perf_counter

import msgspec
from support.invalidation_clients import EPOCH, Stand, change, declare, row_keys, touching, watch_key

from strandline.delivery.invalidation.keys import hexadecimal, table_key
from strandline.delivery.invalidation.live import meta_of
from strandline.schema.profiles.touch_settings import MemorySettings, TemplateSettings, TouchSettings

BY_A = row_keys("posts", a="x")[0]
POSTS = table_key("posts")
X = watch_key("posts", a="x")
INSERT_X, INSERT_Y = change("posts", "insert", {"a": "x"}), change("posts", "insert", {"a": "y"})


def test_whoever_waits_is_told_and_goes_on_from_there(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        client = stand.wait(POSTS, coarse=True)
        stand.append(INSERT_X)
        stand.run()
        assert client.answer is not None
        assert (client.verdict, client.answer.generation, client.answer.kind) == ("touched", 1, "tableKey")
        again = stand.wait(POSTS, since=client.answer.generation, coarse=True, timeout_ms=50)
        stand.pass_time(100)
        assert again.verdict == "timeout"
        assert stand.wait(POSTS, since=0, coarse=True).verdict == "touched"
        assert client.told == again.told == 1


def test_a_cursor_of_another_epoch_is_stale_and_one_from_the_future_is_now(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        stale = stand.wait(POSTS, since=0, epoch=hexadecimal(EPOCH + 1))
        assert stale.verdict == "stale"
        future = stand.wait(POSTS, since=99, timeout_ms=0)
        assert future.answer is not None
        assert (future.verdict, future.answer.generation) == ("timeout", 0)


def test_a_burst_is_one_generation_and_a_lone_change_is_told_at_once(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(coarse_interval_ms=1)) as stand:
        stand.pass_time(1000)
        stand.append(INSERT_X)
        stand.run()
        assert stand.generation == 1
        for _ in range(3):
            stand.append(INSERT_X)
            stand.clock.advance(1)
            stand.run()
        assert stand.generation == 1
        stand.pass_time(100)
        assert stand.generation == 2


def test_a_wait_exactly_is_not_told_of_a_key_with_the_same_lower_half(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        twin = POSTS ^ 1 << 40
        exact, other = stand.wait(twin, exact=True), stand.wait(twin)
        stand.append(INSERT_X)
        stand.run()
        assert exact.verdict is None
        assert other.verdict == "touched"
        assert stand.wait(twin, since=0, exact=True, timeout_ms=0).verdict == "timeout"
        assert stand.wait(POSTS, since=0, exact=True, timeout_ms=0).verdict == "touched"


# --- what may have been missed ---------------------------------------------------------------------------------------


def test_who_comes_after_rows_were_skipped_is_told_once(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        stand.activate(declare("posts", "a"))
        stand.append(INSERT_Y)
        stand.run()
        first = stand.wait(X, since=0, templates=(BY_A,))
        assert first.verdict == "touched"
        stand.append(INSERT_Y)
        stand.pass_time(200)
        assert stand.wait(X, since=1, templates=(BY_A,), timeout_ms=0).verdict == "timeout"


def test_what_was_skipped_in_the_open_bucket_is_told_when_it_is_flushed(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(coarse_interval_ms=1)) as stand:
        stand.activate(declare("posts", "a"))
        stand.append(INSERT_Y)
        stand.run()
        assert stand.generation == 1
        stand.clock.advance(1)
        stand.append(INSERT_X)
        stand.runtime.step(perf_counter() + 60)
        assert stand.generation == 1
        first, second = (stand.wait(X, since=1, templates=(BY_A,)) for _ in range(2))
        nameless = stand.wait(X, since=1)
        assert first.verdict is second.verdict is nameless.verdict is None
        stand.pass_time(200)
        assert [client.verdict for client in (first, second, nameless)] == ["touched"] * 3


def test_a_change_before_the_template_was_active_is_told_to_an_older_cursor(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(coarse_interval_ms=1)) as stand:
        stand.wait(table_key("other"), coarse=True)
        stand.append(INSERT_X)
        stand.run()
        stand.activate(declare("posts", "a"))
        assert stand.wait(X, since=0, templates=(BY_A,)).verdict == "touched"
        assert stand.wait(X, since=1, templates=(BY_A,), timeout_ms=0).verdict == "timeout"


def test_a_change_in_the_bucket_in_which_the_template_is_activated_is_told(tmp_path: Path) -> None:
    for interval_ms in (1, 10_000):
        with touching(tmp_path / str(interval_ms), TouchSettings(coarse_interval_ms=interval_ms)) as stand:
            stand.append(INSERT_Y)
            stand.run()
            stand.clock.advance(1)
            stand.append(INSERT_X)
            stand.runtime.step(perf_counter() + 60)
            assert stand.generation == 1
            stand.activate(declare("posts", "a"))
            client = stand.wait(X, since=1, templates=(BY_A,))
            assert client.verdict is None
            stand.pass_time(200)
            assert client.verdict == "touched"


def test_who_names_a_template_that_is_not_known_is_told_of_everything(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        client = stand.wait(X, templates=(BY_A,))
        stand.append(change("users", "delete"))
        stand.run()
        assert client.verdict == "touched"


def test_who_names_a_template_that_was_retired_is_told_of_its_table(tmp_path: Path) -> None:
    templates = TemplateSettings(default_inactivity_ttl_ms=1000, gc_interval_ms=1000)
    with touching(tmp_path, TouchSettings(templates=templates)) as stand:
        stand.activate(declare("posts", "a"))
        stand.pass_time(5000)
        assert len(stand.runtime.templates) == 0
        client = stand.wait(X, templates=(BY_A,))
        stand.append(change("users", "delete"))
        stand.pass_time(200)
        assert client.verdict is None
        stand.append(change("posts", "delete"))
        stand.pass_time(200)
        assert client.verdict == "touched"


def test_a_template_that_somebody_waits_on_is_not_retired_and_one_that_is_evicted_wakes_them(tmp_path: Path) -> None:
    templates = TemplateSettings(default_inactivity_ttl_ms=1000, gc_interval_ms=1000, max_active_per_entity=1)
    with touching(tmp_path, TouchSettings(templates=templates)) as stand:
        stand.activate(declare("posts", "a"))
        named, nameless = stand.wait(X, templates=(BY_A,)), stand.wait(X)
        stand.pass_time(10_000)
        assert named.verdict is None
        stand.activate(declare("posts", "b"))
        stand.pass_time(200)
        assert (named.verdict, nameless.verdict) == ("touched", "touched")


def test_a_cursor_from_before_a_template_was_retired_is_told(tmp_path: Path) -> None:
    templates = TemplateSettings(default_inactivity_ttl_ms=1000, gc_interval_ms=1000)
    with touching(tmp_path, TouchSettings(templates=templates)) as stand:
        stand.activate(declare("posts", "a"))
        since = stand.generation
        stand.pass_time(5000)
        stand.append(INSERT_X)
        stand.pass_time(200)
        stand.activate(declare("posts", "a"))
        assert stand.wait(X, since=since, templates=(BY_A,)).verdict == "touched"


def test_who_names_no_template_is_told_when_one_is_retired_and_keeps_all_of_them_interesting(tmp_path: Path) -> None:
    templates = TemplateSettings(default_inactivity_ttl_ms=30_000, gc_interval_ms=1000)
    with touching(tmp_path, TouchSettings(templates=templates)) as stand:
        stand.activate(declare("posts", "a"))
        stand.pass_time(15_000)
        first = stand.wait(X, timeout_ms=100_000)
        stand.append(INSERT_X)
        stand.pass_time(200)
        assert first.verdict == "touched"
        second = stand.wait(X, timeout_ms=100_000)
        stand.pass_time(60_000)
        assert second.verdict == "touched"


def test_a_key_may_be_of_interest_for_longer_than_its_template(tmp_path: Path) -> None:
    memory = MemorySettings(hot_key_ttl_ms=60_000, hot_template_ttl_ms=50)
    with touching(tmp_path, TouchSettings(memory=memory)) as stand:
        stand.activate(declare("posts", "a"))
        stand.wait(X, templates=(BY_A,), timeout_ms=0)
        stand.pass_time(3000)
        since = stand.generation
        stand.append(INSERT_X)
        stand.pass_time(200)
        assert stand.runtime.processor.skipped_cold_template == 1
        assert stand.wait(X, since=since, templates=(BY_A,)).verdict == "touched"


def test_records_that_are_gone_before_they_were_looked_at_count_as_touching_everything(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        client = stand.wait(table_key("anything"), coarse=True)
        stand.log.configure(type(stand.log.config)(cap_records=2)).wait()
        stand.append(*[INSERT_X] * 5)
        stand.run()
        assert client.verdict == "touched"


def test_nobody_who_waits_on_many_keys_is_sent_on_past_what_they_were_not_asked_about(tmp_path: Path) -> None:
    memory = MemorySettings(key_index_max_keys=1)
    with touching(tmp_path, TouchSettings(memory=memory, coarse_interval_ms=1)) as stand:
        client = stand.wait(POSTS, table_key("users"), coarse=True, timeout_ms=50)
        crowd = [stand.wait(POSTS, table_key("others"), coarse=True, timeout_ms=5000) for _ in range(100)]
        stand.clock.advance(100)
        stand.append(INSERT_X)
        stand.runtime.step(perf_counter() - 1)
        stand.runtime.tick()
        stand.run()
        assert client.answer is not None
        assert client.verdict == "touched" or client.answer.generation == 0
        assert all(one.verdict == "touched" for one in crowd)


# --- interest --------------------------------------------------------------------------------------------------------


def test_what_nobody_is_interested_in_is_not_read_and_not_forgotten(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        runtime = stand.runtime
        assert runtime.mode == "idle"
        stand.pass_time(20_000)
        assert runtime.asleep
        assert runtime.next_due() is None
        stand.append(*[INSERT_X] * 3)
        stand.run()
        assert runtime.follower.rows == 0
        assert stand.wait(table_key("anything"), since=0, coarse=True).verdict == "touched"
        assert runtime.follower.advanced == 3
        assert stand.wait(table_key("anything"), since=1, coarse=True, timeout_ms=0).verdict == "timeout"


def test_who_waits_keeps_it_awake(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        client = stand.wait(POSTS, coarse=True, timeout_ms=100_000)
        stand.pass_time(50_000)
        assert not stand.runtime.asleep
        stand.append(INSERT_X)
        stand.run()
        assert client.verdict == "touched"


def test_settling_tells_when_everything_is_known_or_time_is_up(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(coarse_interval_ms=60_000)) as stand:
        told: list[str] = []
        stand.append(INSERT_X)
        stand.run()
        stand.append(INSERT_X)
        stand.runtime.settle(1000, lambda: told.append("settled"))
        assert told == []
        stand.run()
        assert told == ["settled"]
        assert stand.runtime.settled
        stand.append(INSERT_X)
        stand.runtime.settle(1000, lambda: told.append("late"))
        stand.clock.advance(1000)
        stand.runtime.tick()
        assert told == ["settled", "late"]


# --- the rest --------------------------------------------------------------------------------------------------------


def test_templates_are_written_down_when_they_change_and_now_and_then(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(templates=TemplateSettings(last_seen_persist_interval_ms=5000))) as stand:
        stand.activate(declare("posts", "a"))
        stand.pass_time(500)
        assert stand.persisted == []
        stand.pass_time(600)
        assert len(stand.persisted) == 1
        stand.wait(X, templates=(BY_A,), timeout_ms=0)
        stand.pass_time(4000)
        assert len(stand.persisted) == 1
        stand.pass_time(2000)
        assert len(stand.persisted) == 2
        later = Stand(stand.log.engine, TouchSettings(), stored=stand.persisted[-1])
        assert later.runtime.templates.get(BY_A) is not None


def test_in_the_end_everybody_is_answered(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        told: list[str] = []
        touched, waiting = stand.wait(POSTS, coarse=True), stand.wait(table_key("users"), coarse=True)
        stand.append(INSERT_X)
        stand.runtime.settle(1000, lambda: told.append("settled"))
        stand.runtime.step(perf_counter() - 1)
        stand.runtime.end("ended")
        assert (touched.verdict, waiting.verdict, told) == ("touched", "ended", ["settled"])
        assert len(stand.runtime.waiters) == 0


def test_every_number_is_counted(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        stand.activate(declare("posts", "a"))
        stand.wait(X, templates=(BY_A,))
        stand.wait(POSTS, coarse=True)
        stand.wait(table_key("users"), coarse=True, timeout_ms=10)
        stand.wait(X, since=0, epoch="0" * 16)
        stand.append(INSERT_X)
        stand.pass_time(100)
        numbers = msgspec.to_builtins(meta_of(stand.runtime, stand.clock.now(), None))
        expected = {
            "generation": 1, "activeWaiters": 0, "activeTemplates": 1, "touchMode": "fine", "settled": True,
            "scanRowsTotal": 1, "scanBatchesTotal": 1, "processedThroughDeltaTotal": 1, "touchesEmittedTotal": 2,
            "touchesTableTotal": 1, "touchesTemplateTotal": 1, "fineTouchesSkippedColdKeyTotal": 1,
            "waitTouchedTotal": 2, "waitTimeoutTotal": 1, "waitStaleTotal": 1, "journalFlushesTotal": 1,
            "journalNotifyWakeupsTotal": 2, "journalTimeoutsFiredTotal": 1, "hotFineKeys": 1, "hotFineKeysGrace": 1,
            "hotTemplates": 1, "bucketMaxSourceOffsetSeq": "0", "lagSourceOffsets": 0, "pendingKeys": 0,
            "hotKeyFilteringEnabled": True, "hotTemplateFilteringEnabled": True,
        }  # fmt: skip
        assert {name: numbers[name] for name in expected} == expected
