from __future__ import annotations

import pytest

from strandline.pipeline.source.option_values import BadOption, PerLog
from strandline.pipeline.source.options import (
    DELAY_MS,
    LATEST,
    LogLocation,
    ReadOptions,
    TriggerLimits,
    read_options,
    write_options,
)


def test_names_are_taken_in_any_case() -> None:
    options = read_options({"PATH": "/data", "STARTSEQ": "5", "endseq": "9", "rowsperpartition": "7", "own": "True"})
    assert options.place == LogLocation(path="/data")
    assert (options.after("a"), options.ends.of("a"), options.rows_per_partition, options.own) == (4, 9, 7, True)


def test_times_are_milliseconds_or_iso_in_utc_unless_they_say_otherwise() -> None:
    def since(text: str) -> int | None:
        return read_options({"path": "/data", "startTime": text}).since.all

    assert since("1700000000123") == 1_700_000_000_123
    assert since("2023-11-14T22:13:20.123Z") == 1_700_000_000_123
    assert since("2023-11-14T22:13:20.123") == 1_700_000_000_123
    assert since("2023-11-15 00:13:20.123+02:00") == 1_700_000_000_123


def test_logs_are_a_list_in_which_each_counts_once() -> None:
    assert read_options({"path": "/data", "logs": "b, a,b,"}).logs == ("b", "a")


def test_a_declared_table_is_in_the_lake_of_a_directory_or_anywhere() -> None:
    by_path = read_options({"path": "/data", "Table": "revenue", "columns": "day"})
    assert (by_path.table, by_path.lake, by_path.columns) == ("revenue", "/data/lake", ("day",))
    assert read_options({"lake": "/lake", "table": "revenue"}, stream=False).lake == "/lake"


@pytest.mark.parametrize(
    ("given", "stream", "said"),
    [
        ({"table": "t"}, False, "either lake .* or path"),
        ({"table": "t", "lake": "/l", "path": "/d"}, False, "either lake .* or path"),
        ({"lake": "/l"}, False, "lake requires table"),
        ({"table": "t", "url": "http://x"}, False, "url cannot be combined with table, which is read with table, lake"),
        ({"table": "t", "lake": "/l", "startSeq": "1"}, False, "startSeq cannot be combined with table"),
        ({"table": "t", "lake": "/l", "cold.region": "r"}, False, "cold.region cannot be combined with table"),
        ({"table": "t", "lake": "/l"}, True, "cannot be read as a stream: give the table the property strandline.log"),
    ],
)
def test_a_declared_table_is_read_as_a_whole(given: dict[str, str], stream: bool, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        read_options(given, stream=stream)


def test_a_declared_table_is_not_written() -> None:
    with pytest.raises(BadOption, match="only written by its pipeline"):
        write_options({"path": "/data", "table": "revenue", "log": "a"})


def test_what_is_said_to_the_cold_tier_is_passed_on() -> None:
    place = read_options({"path": "/data", "cold": "s3://x", "cold.aws_Region": "r", "cold.allow_http": "true"}).place
    assert (place.cold, place.cold_options) == ("s3://x", {"aws_region": "r", "allow_http": True})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either url"),
        ({"path": "/d", "url": "http://x"}, "either url"),
        ({"url": "x:1"}, "must start with http"),
        ({"path": "/d", "key": "k"}, "key cannot be combined with path"),
        ({"url": "http://x", "cold": "s3://y"}, "cold cannot be combined with url"),
        ({"path": "/d", "cold.region": "r"}, "options require cold"),
        ({"path": "/d", "nope": "1"}, "unknown option 'nope'; available are batchRows, checkpointLocation, cold"),
        ({"path": "/d", "logs": "a", "prefix": "b"}, "logs and prefix cannot be combined"),
        ({"path": "/d", "logs": " , "}, "logs must not be an empty list"),
        ({"path": "/d", "logs": "a", "subscribePattern": "b"}, "logs and subscribePattern cannot be combined"),
        ({"path": "/d", "logs": "a", "subscribe": "b"}, "logs and subscribe are the same option"),
        ({"path": "/d", "logPattern": "("}, "logPattern must be a regular expression, got '('"),
        ({"path": "/d", "startSeq": "0"}, "startSeq must be a sequence number from 1"),
        ({"path": "/d", "startSeq": "-1"}, "startSeq must be a sequence number"),
        ({"path": "/d", "startSeq": '{"a": true}'}, "startSeq must be .* for log 'a', got true"),
        ({"path": "/d", "startingOffsets": '{"a": {"0": 5}}'}, "startingOffsets must be .* for log 'a', got {\"0\":5}"),
        ({"path": "/d", "startSeq": '{"a": 1'}, "startSeq must be .*, or JSON by log, got"),
        ({"path": "/d", "logs": "a", "startSeq": '{"b": 1}'}, "startSeq names log 'b', which is not one of the logs"),
        ({"path": "/d", "prefix": "x", "endTime": '{"b": 1}'}, "endTime names log 'b', which is not one of the logs"),
        ({"path": "/d", "endSeq": "x"}, "endSeq must be a sequence number from 1, 'latest', or JSON"),
        ({"path": "/d", "endSeq": "earliest"}, "endSeq must be a sequence number"),
        ({"path": "/d", "startTime": "yesterday"}, "startTime must be milliseconds"),
        ({"path": "/d", "startTime": '{"a": 1.5}'}, "startTime must be milliseconds .* for log 'a', got 1.5"),
        ({"path": "/d", "endingOffsets": "latest"}, "unknown option 'endingOffsets': use endSeq"),
        ({"path": "/d", "rowsPerBatch": "5"}, "unknown option 'rowsPerBatch': use maxOffsetsPerTrigger"),
        ({"path": "/d", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "must not be more than"),
        ({"path": "/d", "maxTriggerDelay": "5m"}, "maxTriggerDelay requires minOffsetsPerTrigger"),
        (
            {"path": "/d", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"},
            "maxTriggerDelay must be milliseconds",
        ),
        ({"path": "/d", "maxBytesPerTrigger": "0"}, "maxBytesPerTrigger must be a number of bytes"),
        ({"path": "/d", "columns": ","}, "columns must not be an empty list"),
        ({"path": "/d", "payload": "xml"}, "payload must be one of string, bytes, variant, columns"),
        ({"path": "/d", "own": "maybe"}, "own must be true or false"),
        ({"path": "/d", "startingOffsets": "middle"}, "startingOffsets must be a sequence number"),
        (
            {"path": "/d", "startingOffsets": "latest", "startSeq": "1"},
            "startingOffsets and startSeq are the same option",
        ),
        ({"path": "/d", "startSeq": "latest", "startTime": "1"}, "startSeq 'latest' and startTime cannot be combined"),
        (
            {"path": "/d", "rowsPerPartition": "1", "splitsPerLog": "1"},
            "rowsPerPartition and splitsPerLog cannot be combined",
        ),
        ({"path": "/d", "splitsPerLog": "0"}, "splitsPerLog must be an integer"),
        ({"path": "/d", "prefix": ""}, "prefix must not be empty"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said.replace("(", r"\(")):
        read_options(given)


def test_positions_are_for_all_logs_or_by_log() -> None:
    def read(**given: str) -> ReadOptions:
        return read_options({"path": "/d", **given}, stream=True)

    assert read(startSeq="7", endSeq="latest").starts == PerLog(7)
    options = read(startingOffsets='{"a": 120, "b": "earliest", "c": "latest"}', endSeq='{"a": 130, "b": "latest"}')
    assert [options.after(log) for log in "abcd"] == [119, 0, 0, 0]
    assert [options.is_latest(log) for log in "abcd"] == [False, False, True, False]
    assert [options.ends.of(log) for log in "ab"] == [130, None]
    times = read(startTime='{"a": "1970-01-01T00:00:01", "b": 5}', endingTimestamp="9")
    assert ([times.since.of(log) for log in "abc"], times.until.of("a")) == ([1000, 5, None], 9)
    assert read(startSeq="latest").starts == PerLog(LATEST)
    with pytest.raises(BadOption, match="startSeq 'latest' is only for streams"):
        read_options({"path": "/d", "startSeq": '{"a": "latest"}'}, stream=False)


def test_logs_are_selected_by_name_prefix_or_pattern() -> None:
    options = read_options({"path": "/d", "logPattern": "orders-[0-9]+"})
    assert [options.selects(log) for log in ("orders-1", "orders-1x", "orders-")] == [True, False, False]
    assert read_options({"path": "/d", "log": "a,b"}).logs == ("a,b",)
    assert read_options({"path": "/d", "log": "a", "logs": "b,c"}).logs == ("b", "c")


def test_limits_of_a_batch_have_units() -> None:
    def limits(**given: str) -> TriggerLimits | None:
        return read_options({"path": "/d", **given}, stream=True).limits

    assert limits() is None
    assert limits(maxBytesPerTrigger="64m") == TriggerLimits(None, None, 64 << 20, DELAY_MS)
    both = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "9"}
    assert limits(**both) == TriggerLimits(5, 9, None, 15 * 60_000)
    for text, wanted in (("0", 0), ("250", 250), ("30s", 30_000), ("2 h", 7_200_000)):
        assert limits(**both, maxTriggerDelay=text) == TriggerLimits(5, 9, None, wanted)


def test_a_view_is_read_and_written_with_the_same_options() -> None:
    given = {"url": "http://x/", "log": "a", "create": "false", "batchRows": "3", "columns": "key,data", "writer": "w"}
    options = write_options(given)
    assert (options.place.url, options.log, options.create, options.batch_rows) == ("http://x", "a", False, 3)
    assert read_options(given).logs == ("a",)
    with pytest.raises(BadOption, match="logs selects the logs to read: set log"):
        write_options({"url": "http://x", "logs": "a"})
    with pytest.raises(BadOption, match="cold is only for reading"):
        write_options({"path": "/d", "cold": "s3://x"})
