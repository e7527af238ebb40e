"""Full-text search over rows: the hits of the query package that the reader may see, newest first."""

from __future__ import annotations

import re
from time import perf_counter
from typing import TYPE_CHECKING

from strandline.query.bound import AndB, Bound, bare_clause
from strandline.query.config import SearchConfig
from strandline.query.errors import BadQuery
from strandline.query.language import MAX_CLAUSES, Bare
from strandline.query.order import OFFSET, SortKey, SortValues
from strandline.query.requests import MAX_SIZE, SearchRequest
from strandline.schema.log_search import log_search
from strandline.tables.errors import invalid
from strandline.tables.names import RowId
from strandline.tables.rows import FoundRows, Row
from strandline.tables.step import read_row

if TYPE_CHECKING:
    from strandline.tables.table import Table
    from strandline.tables.view import View

#: The time limit of a search. The rows found by then are returned.
SEARCH_SECONDS = 3.0
MAX_QUERY = 1_000

_WORDS = re.compile(r'"([^"]*)"|(\S+)')
_NEWEST_FIRST = (SortKey(OFFSET, True),)


def search_rows(table: Table, view: View, query: object, limit: int) -> FoundRows:
    """See :meth:`Table.search`."""
    search = log_search(table.declaration.search_registry)
    if search is None:
        raise invalid(f"cannot search {table.name}: it is declared without search")
    bound = _bound(query, search.config)
    if view.log is None:
        return FoundRows([], True)
    deadline = perf_counter() + SEARCH_SECONDS
    keeps = table.versions.keep(table.declaration.search_fields)
    searcher = table.tables.searcher if keeps else table.tables.upgraded_searcher
    rows: list[Row] = []
    after: SortValues | None = None
    complete = True
    while complete and len(rows) < limit:
        request = SearchRequest(bound, MAX_SIZE if not view.sees_all else min(limit, MAX_SIZE), _NEWEST_FIRST, after, 0)
        result = searcher.search(view.log, search.config, request, search.versions, lambda seq, data: None, deadline)
        found = (read_row(view.log, RowId(view.parent, hit.seq)) for hit in result.hits)
        rows += [row for row in found if row is not None and view.shows(row.user)]
        complete = result.coverage.complete and not result.coverage.timed_out
        after = result.next_after
        if after is None:
            break
    return FoundRows(view.dress(rows[:limit]), complete)


def _bound(query: object, config: SearchConfig) -> Bound:
    """The query that requires all words of the text. Words without a letter or digit are ignored."""
    if type(query) is not str or len(query) > MAX_QUERY:
        raise invalid(f"query must be text of at most {MAX_QUERY} characters", "query")
    clauses: list[Bound] = []
    for match in _WORDS.finditer(query):
        phrase, word = match.groups()
        try:
            clauses.append(bare_clause(Bare(word if phrase is None else phrase, phrase is not None), config))
        except BadQuery:
            continue  # the word has no letter or digit
    if not clauses:
        raise invalid("query must have at least one letter or digit", "query")
    return clauses[0] if len(clauses) == 1 else AndB(tuple(clauses[:MAX_CLAUSES]))
