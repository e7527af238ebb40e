from __future__ import annotations

import pytest

from strandline.pipeline.source.options import BadOption, LogLocation, read_options, write_options


def test_names_are_taken_in_any_case() -> None:
    options = read_options({"PATH": "/data", "STARTSEQ": "5", "endseq": "9", "rowsperpartition": "7", "own": "True"})
    assert options.place == LogLocation(path="/data")
    assert (options.after, options.through, options.rows_per_partition, options.own) == (4, 9, 7, True)


def test_times_are_milliseconds_or_iso_in_utc_unless_they_say_otherwise() -> None:
    def since(text: str) -> int | None:
        return read_options({"path": "/data", "startTime": text}).since

    assert since("1700000000123") == 1_700_000_000_123
    assert since("2023-11-14T22:13:20.123Z") == 1_700_000_000_123
    assert since("2023-11-14T22:13:20.123") == 1_700_000_000_123
    assert since("2023-11-15 00:13:20.123+02:00") == 1_700_000_000_123


def test_logs_are_a_list_in_which_each_counts_once() -> None:
    assert read_options({"path": "/data", "logs": "b, a,b,"}).logs == ("b", "a")


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
        ({"path": "/d", "nope": "1"}, "unknown option 'nope' for reading; available are batchRows, cold"),
        ({"path": "/d", "logs": "a", "prefix": "b"}, "logs and prefix cannot be combined"),
        ({"path": "/d", "logs": " , "}, "logs must not be an empty list"),
        ({"path": "/d", "startSeq": "0"}, "startSeq must be an integer from 1"),
        ({"path": "/d", "startSeq": "-1"}, "startSeq must be an integer"),
        ({"path": "/d", "endSeq": "x"}, "endSeq must be an integer"),
        ({"path": "/d", "startTime": "yesterday"}, "startTime must be milliseconds"),
        ({"path": "/d", "payload": "xml"}, "payload must be one of string, bytes, variant, columns"),
        ({"path": "/d", "own": "maybe"}, "own must be true or false"),
        ({"path": "/d", "startingOffsets": "middle"}, "startingOffsets must be one of earliest, latest"),
        (
            {"path": "/d", "startingOffsets": "latest", "startSeq": "1"},
            "startSeq and startingOffsets cannot be combined",
        ),
        (
            {"path": "/d", "rowsPerPartition": "1", "splitsPerLog": "1"},
            "rowsPerPartition and splitsPerLog cannot be combined",
        ),
        ({"path": "/d", "splitsPerLog": "0"}, "splitsPerLog must be an integer"),
        ({"path": "/d", "prefix": ""}, "prefix must not be empty"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match="^.*" + said.replace("(", r"\(")):
        read_options(given)


def test_an_option_of_streams_is_none_of_batches() -> None:
    given = {"path": "/data", "rowsPerBatch": "5"}
    assert read_options(given, stream=True).rows_per_batch == 5
    with pytest.raises(BadOption, match="unknown option 'rowsPerBatch' for reading"):
        read_options(given, stream=False)


def test_writing_has_options_of_its_own() -> None:
    options = write_options({"url": "http://x/", "log": "a", "create": "false", "batchRows": "3"}, stream=False)
    assert (options.place.url, options.log, options.create, options.batch_rows) == ("http://x", "a", False, 3)
    with pytest.raises(BadOption, match="unknown option 'writer' for writing"):
        write_options({"url": "http://x", "writer": "w"}, stream=False)
    with pytest.raises(BadOption, match="cold is only for reading"):
        write_options({"path": "/d", "cold": "s3://x"}, stream=False)
