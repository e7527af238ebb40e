"""Tables: declared rows under parents, stored in the logs of an engine.

This package is synchronous, thread-safe and independent of HTTP. Declare a table with :func:`make_log` and bind it to
an engine with :class:`Tables`.
"""

from strandline.tables.declaration import RateLimit, TableDeclaration, make_log
from strandline.tables.errors import BadDeclaration, MisusedHook, TableError
from strandline.tables.hook_context import HookContext, WriteContext
from strandline.tables.hooks import Hooks
from strandline.tables.operations import Item
from strandline.tables.rows import (
    AppendBulkResult,
    AppendResult,
    Change,
    Counts,
    Edit,
    FoundRows,
    PurgeResult,
    RestoreResult,
    RmBulkResult,
    RmResult,
    Row,
    RowPage,
    RowsAfter,
    TableFeedPage,
    Write,
    change_of,
    row_of,
)
from strandline.tables.table import Table, Tables
from strandline.tables.users import User
from strandline.tables.view import View

__all__ = [
    "AppendBulkResult",
    "AppendResult",
    "BadDeclaration",
    "Change",
    "Counts",
    "Edit",
    "FoundRows",
    "HookContext",
    "Hooks",
    "Item",
    "MisusedHook",
    "PurgeResult",
    "RateLimit",
    "RestoreResult",
    "RmBulkResult",
    "RmResult",
    "Row",
    "RowPage",
    "RowsAfter",
    "Table",
    "TableDeclaration",
    "TableError",
    "TableFeedPage",
    "Tables",
    "User",
    "View",
    "Write",
    "WriteContext",
    "change_of",
    "make_log",
    "row_of",
]
