"""The types of the client fit the answers that the server declares. They are declared twice, because the client imports
nothing of the server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from strandline import tables
from strandline.client import (
    collection_calls,
    failures,
    group_calls,
    queue_calls,
    search_types,
    table_calls,
    table_types,
    topic_types,
)
from strandline.delivery.queues import dead_letters, jobs
from strandline.protocols.collections import wire as collections_wire
from strandline.protocols.streams.wire import search as search_wire
from strandline.protocols.tables import wire as tables_wire
from strandline.protocols.topics import wire as topics_wire
from strandline.query import declaration
from strandline.service import log_config

PAIRS: list[tuple[type[msgspec.Struct], type[msgspec.Struct]]] = [
    (failures.JobFailure, topics_wire.JobFailure),
    (topic_types.QueueState, topics_wire.QueueState),
    (group_calls.GrantedShare, topics_wire.GrantedShare),
    (group_calls.MemberState, topics_wire.MemberState),
    (group_calls.ShareState, topics_wire.ShareState),
    (collection_calls.Element, collections_wire.ElementAnswer),
    (collection_calls.Appended, collections_wire.PushAnswer),
    (collection_calls._Pulled, collections_wire.PullAnswer),
    (collection_calls._Document, collections_wire.DocumentAnswer),
    (collection_calls.Pushed, collections_wire.PushAnswer),
    (collection_calls._Batch, collections_wire.BatchAnswer),
    (table_types.RowAppended, tables.AppendResult),
    (table_types.BulkAppended, tables.AppendBulkResult),
    (table_types.RowRemoved, tables.RmResult),
    (table_types.BulkRemoved, tables.RmBulkResult),
    (table_types.Purged, tables.PurgeResult),
    (table_types.Restored, tables.RestoreResult),
    (table_types.Counts, tables.Counts),
    (table_types.Edit, tables.Edit),
    (table_calls._Edits, tables_wire.HistoryAnswer),
    (table_types.Removed, tables_wire.RmEvent),
    (table_types.AllRemoved, tables_wire.PurgeEvent),
    (table_types.AllBack, tables_wire.RestoreAllEvent),
    (table_types.Ready, tables_wire.ReadyEvent),
]


def members(form: type[msgspec.Struct]) -> dict[str, bool]:
    """The members of an answer; whether they are always there."""
    return {field.encode_name: field.required for field in msgspec.structs.fields(form)}


@pytest.mark.parametrize(("read", "sent"), PAIRS, ids=lambda form: form.__name__)
def test_the_client_reads_what_the_server_sends(read: type[msgspec.Struct], sent: type[msgspec.Struct]) -> None:
    assert members(read) == members(sent)


@pytest.mark.parametrize(
    ("read", "sent"),
    [
        (search_types.Coverage, search_wire.SearchCoverage),
        (search_types.Coverage, search_wire.AggregateCoverage),
        (search_types.Total, search_wire.SearchTotal),
        (search_types.Hit, search_wire.SearchHit),
        (search_types.Found, search_wire.SearchAnswer),
        (search_types.Measure, search_wire.AggregateMeasure),
        (search_types.Group, search_wire.AggregateGroup),
        (search_types.Bucket, search_wire.AggregateBucket),
        (search_types.Aggregated, search_wire.AggregateAnswer),
    ],
)
def test_the_client_reads_a_part_of_what_a_search_answers(
    read: type[msgspec.Struct], sent: type[msgspec.Struct]
) -> None:
    answered = set(members(sent)) | ({"used_rollups"} if sent is search_wire.SearchCoverage else set())
    assert set(members(read)) <= answered
    needed = {name for name, required in members(read).items() if required}
    # Members with a default are numbers, which are sent all the same.
    assert needed <= {name for name, required in members(sent).items() if required} | {"scanned_segments"}


def test_the_client_tells_the_members_of_a_row_from_its_payload() -> None:
    row = {field.encode_name: field.name for field in msgspec.structs.fields(tables.Row)}
    del row["payload"]
    assert row == table_calls.MEMBERS


def test_the_client_knows_the_stamps_of_dead_letters() -> None:
    assert set(members(queue_calls._Stamps)) == set(dead_letters.STAMPS)


def test_the_client_cuts_reasons_to_the_size_that_the_server_accepts() -> None:
    assert failures.MAX_REASON_BYTES == jobs.MAX_REASON_BYTES


def test_the_client_knows_the_options_that_the_server_leaves_out_while_they_have_their_default() -> None:
    left_out = [name for name, required in members(log_config.ConfigShown).items() if not required and name != "search"]
    known, sent = topic_types.TopicConfig(), log_config.TopicConfig()
    assert {name: getattr(known, name) for name in left_out} == {name: getattr(sent, name) for name in left_out}


@pytest.mark.parametrize(
    ("typed", "declared"),
    [
        (search_types.SearchConfig, declaration.SearchDeclaration),
        (search_types.SearchField, declaration.FieldDeclaration),
        (search_types.SearchBinding, declaration.BindingDeclaration),
        (search_types.SearchDefaultField, declaration.DefaultFieldDeclaration),
    ],
)
def test_the_client_knows_the_members_of_a_search_configuration(typed: Any, declared: type[msgspec.Struct]) -> None:
    known: Any = msgspec.inspect.type_info(typed)
    assert {field.encode_name: field.required for field in known.fields} == members(declared)
