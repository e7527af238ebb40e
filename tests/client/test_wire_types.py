"""The types of the client fit the answers that the server declares. They are declared twice, because the client imports
nothing of the server."""

from __future__ import annotations

import msgspec
import pytest

from strandline import tables
from strandline.client import collection_calls, table_calls, table_types
from strandline.protocols.collections import wire as collections_wire
from strandline.protocols.tables import wire as tables_wire

PAIRS: list[tuple[type[msgspec.Struct], type[msgspec.Struct]]] = [
    (collection_calls.Element, collections_wire.ElementAnswer),
    (collection_calls.Appended, collections_wire.PushAnswer),
    (collection_calls._Pulled, collections_wire.PullAnswer),
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


def test_the_client_tells_the_members_of_a_row_from_its_payload() -> None:
    row = {field.encode_name: field.name for field in msgspec.structs.fields(tables.Row)}
    del row["payload"]
    # The server refuses payloads with a member of this name, and sends none.
    assert {**row, "deletedAt": "deleted_at"} == table_calls.MEMBERS
