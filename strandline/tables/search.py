"""Full-text search over rows: the hits of the query package that the reader may see, newest first."""

from __future__ import annotations

import re
from time import perf_counter
from typing import TYPE_CHECKING

from strandline.query.bound import AndB, Bound, bare_clause
from strandline.query.config import Binding, Field, SearchConfig
from strandline.query.errors import BadQuery
from strandline.query.language import MAX_CLAUSES, Bare
from strandline.query.order import OFFSET, SortKey, SortValues
from strandline.query.requests import MAX_SIZE, SearchRequest
from strandline.tables.errors import invalid
from strandline.tables.names import RowId
from strandline.tables.rows import Found, Row
from strandline.tables.step import read_row

if TYPE_CHECKING:
    from strandline.tables.declaration import TableDeclaration
    from strandline.tables.table import Table
    from strandline.tables.view import View

#: The time limit of a search. The rows found by then are returned.
SEARCH_SECONDS = 3.0
MAX_QUERY = 1_000

_WORDS = re.compile(r'"([^"]*)"|(\S+)')
_NEWEST_FIRST = (SortKey(OFFSET, True),)


def search_config(declaration: TableDeclaration) -> SearchConfig:
    """The search configuration of a table: words, prefixes and phrases in its search fields."""
    fields = {
        name: Field(
            name, "text", (Binding(0, _pointer(name)),), analyzer="unicode_word_v1", prefix=True, positions=True
        )
        for name in declaration.search_fields
    }
    return SearchConfig(fields=fields)


def search_rows(table: Table, view: View, query: object, limit: int) -> Found:
    """See :meth:`Table.search`."""
    if not table.declaration.search_fields:
        raise invalid(f"cannot search {table.name}: it is declared without search")
    bound = _bound(query, table.search_config)
    if view.log is None:
        return Found([], True)
    deadline = perf_counter() + SEARCH_SECONDS
    rows: list[Row] = []
    after: SortValues | None = None
    complete = True
    while complete and len(rows) < limit:
        request = SearchRequest(bound, MAX_SIZE if not view.sees_all else min(limit, MAX_SIZE), _NEWEST_FIRST, after, 0)
        result = table.tables.searcher.search(
            view.log, table.search_config, request, (), lambda seq, data: None, deadline
        )
        found = (read_row(view.log, RowId(view.parent, hit.seq)) for hit in result.hits)
        rows += [row for row in found if row is not None and view.shows(row)]
        complete = result.coverage.complete and not result.coverage.timed_out
        after = result.next_after
        if after is None:
            break
    return Found(view.dress(rows[:limit]), complete)


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


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
