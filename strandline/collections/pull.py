"""Pulls: which elements a pull selects, and how they are read from the log, as JSON and as of one moment.

Elements in memory are joined on the event loop if they are few. All others are read page by page on another thread.
Many clients pull the same elements, so results are cached for a while.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from strandline.collections.config import AppendOnly, Collection
from strandline.collections.documents import Document, Version
from strandline.collections.errors import CollectionError
from strandline.engine import Page
from strandline.engine.record import MAX_TIME
from strandline.signing.canonical_json import canonical, parse

#: The number of elements of a bounded pull that names no limit.
DEFAULT_PAGE = 1000
#: The number of elements, and of bytes, per read.
PAGE = 1000
PAGE_BYTES = 4 << 20
#: The maximum number of elements, and of bytes, to join on the event loop, which takes about a millisecond.
AT_ONCE = 2000
AT_ONCE_BYTES = 1 << 20
#: The maximum if fields are hidden, because then each element is parsed.
PARSED_AT_ONCE = 200
#: The size of the cache in bytes, and of its largest and smallest entries. Smaller results are read as fast as they are
#: looked up.
CACHE_BYTES = 16 << 20
CACHE_ENTRY_MAX = 1 << 20
CACHE_ENTRY_MIN = 1024


class PullBounds(NamedTuple):
    """The bounds given by a client; None where not given."""

    checkpoint: int | None = None
    last: int | None = None
    full: bool = False
    limit: int | None = None

    @property
    def newest(self) -> int | None:
        """The number of newest elements: ``limit`` means the same as ``last``, and takes precedence."""
        return self.last if self.limit is None else self.limit


class ElementSelection(NamedTuple):
    """The selected elements: those later than ``since`` (all if it is None), and of these the ``newest`` or ``oldest``
    ones (all if both are None). If ``capped``, the client requested more of the newest ones than the collection
    allows."""

    since: int | None = None
    newest: int | None = None
    oldest: int | None = None
    capped: bool = False


def select(
    collection: Collection, rules: AppendOnly, bounds: PullBounds, now: int, *, batch: bool = False
) -> ElementSelection:
    """The elements to return for these bounds. Raises :class:`CollectionError` for bounds that are not allowed.

    In a ``batch``, a strict collection returns at most :func:`page_of` elements after a checkpoint, because the budget
    of the batch is computed with that number.
    """
    checkpoint, last, full = bounds.checkpoint, bounds.newest, bounds.full
    if checkpoint is None and last is None and not full:
        raise bound_required()
    if full and (checkpoint is not None or last is not None):
        raise CollectionError("full_with_bounds", "full cannot be combined with checkpoint, limit or last")
    if full and not rules.allow_full:
        raise CollectionError(
            "full_not_allowed", f"collection {collection.name!r} does not allow full pulls; pull with a checkpoint"
        )
    age = rules.max_checkpoint_age_ms
    if checkpoint is not None and age is not None and checkpoint < now - age:
        raise CollectionError("checkpoint_too_old", f"the checkpoint is older than {age} ms")
    # The checkpoint 0 includes elements with the time 0, although they are not later than the checkpoint.
    since = checkpoint or None
    if last is not None:
        most = rules.max_pull_limit
        if most is not None and last > most:
            return ElementSelection(since, newest=most, capped=True)
        return ElementSelection(since, newest=last)
    if not full and collection.strict and (batch or is_paged(rules)):
        return ElementSelection(since, oldest=page_of(rules))
    return ElementSelection(since)


def bound_required() -> CollectionError:
    return CollectionError("bound_required", "a pull requires checkpoint, limit, last or full")


def is_paged(rules: AppendOnly) -> bool:
    """Whether the collection never returns all elements at once. Then a pull with a checkpoint returns a page, too."""
    return not rules.allow_full or rules.max_pull_limit is not None


def page_of(rules: AppendOnly) -> int:
    """The number of elements of a page."""
    return rules.max_pull_limit or DEFAULT_PAGE


def batch_cost(collection: Collection | None, bounds: PullBounds) -> int:
    """The number of elements that one document of a batch counts for: at most as many as a strict collection
    returns. In a collection that is not strict, the published servers count less than they return."""
    rules = (None if collection is None else collection.append_only) or AppendOnly()
    if collection is not None and not collection.strict:
        asked = bounds.limit if bounds.last is None else bounds.last
        return page_of(rules) if asked is None else min(asked, page_of(rules))
    if bounds.newest is None:
        return page_of(rules)
    return bounds.newest if rules.max_pull_limit is None else min(bounds.newest, rules.max_pull_limit)


def is_expired(collection: Collection, ts: int, now: int) -> bool:
    """Whether a document has expired: its last element or version, of the time ``ts``, is older than the TTL. The time
    0 means that the time is unknown."""
    return collection.ttl_ms is not None and ts > 0 and now - ts > collection.ttl_ms


# --- Reading ----------------------------------------------------------------------------------------------------------


class Elements(NamedTuple):
    """Elements as a JSON array without its brackets, and whether a limit left out requested elements: those after these
    ones, or those before them if the newest were requested."""

    json: bytes
    more: bool = False


NONE = Elements(b"")


class ElementReader:
    """Reads elements. Used on the event loop; ``read_from_disk`` may be called on any thread."""

    def __init__(self) -> None:
        self._cache: dict[tuple[Any, ...], Elements] = {}
        self._bytes = 0

    def read(
        self, document: Document, version: Version, selection: ElementSelection, hidden: frozenset[str] = frozenset()
    ) -> Elements | None:
        """The selected elements of the document at that version, without the hidden fields; None if reading them would
        block the event loop."""
        if selection.newest == 0 or not version.total:
            return NONE
        log = document.log
        key = (log.epoch, version.head, log.revision, selection, hidden)
        found = self._cache.get(key)
        if found is None:
            everything = selection.since is None and selection.newest is None and selection.oldest is None
            if everything and version.total > AT_ONCE:
                return None
            try:
                found = _read(document, version, selection, hidden, wait=False)
            except _NotResident:
                return None
            self._store(key, found)
        return found

    @staticmethod
    def read_from_disk(
        document: Document, version: Version, selection: ElementSelection, hidden: frozenset[str]
    ) -> Elements:
        """Like :meth:`read`, but waits for the disk."""
        if selection.newest == 0 or not version.total:
            return NONE
        return _read(document, version, selection, hidden, wait=True)

    def _store(self, key: tuple[Any, ...], elements: Elements) -> None:
        size = len(elements.json)
        if not CACHE_ENTRY_MIN <= size <= CACHE_ENTRY_MAX:
            return
        self._cache[key] = elements
        self._bytes += size
        while self._bytes > CACHE_BYTES:
            self._bytes -= len(self._cache.pop(next(iter(self._cache))).json)


class _NotResident(Exception):
    """The elements are not all in memory, or are too many for the event loop."""


class _Pages:
    """Collects pages. Unless ``wait`` is set, raises _NotResident instead of waiting for the disk or taking long."""

    def __init__(self, document: Document, version: Version, wait: bool, at_once: int) -> None:
        self._log = document.log
        self._head = version.head
        self._wait = wait
        self._at_once = at_once
        self._pages: list[Page] = []
        self._count = 0
        self._size = 0

    def newest(self, most: int, since: int | None, capped: bool) -> tuple[list[Page], bool]:
        """The last ``most`` elements, without those that are not later than ``since``. If ``capped``, also whether
        there are more of them."""
        # One more element than requested shows whether there are more.
        pages = self._newest(most + capped, since)
        more = capped and sum(map(len, pages)) > most
        if more:
            _drop(next(page for page in pages if page.seqs), slice(0, 1))
        return pages, more

    def _newest(self, most: int, since: int | None) -> list[Page]:
        log, before = self._log, self._head + 1
        read = log.read_back if self._wait else log.read_back_resident
        while most:
            page = self._take(read(before, min(most, PAGE), max_bytes=PAGE_BYTES))
            most -= len(page)
            ended = page.caught_up or not page.seqs
            if since is not None:
                old = bisect_right(page.ts, since)
                _drop(page, slice(0, old))
                ended = ended or old > 0
            if ended:
                break
            before = page.seqs[0]
        self._pages.reverse()
        return self._pages

    def oldest(self, most: int | None, since: int | None) -> tuple[list[Page], bool]:
        """The first ``most`` elements later than ``since``, and whether there are more."""
        log, after = self._log, 0
        read = log.read if self._wait else log.read_resident
        time = None if since is None else min(since, MAX_TIME) + 1
        while True:
            # One more element than requested shows whether there are more.
            limit = PAGE if most is None else min(most + 1, PAGE)
            page = self._take(read(after, limit, max_bytes=PAGE_BYTES, since=time))
            _drop(page, slice(bisect_right(page.seqs, self._head), None))
            if most is not None:
                if len(page) > most:
                    _drop(page, slice(most, None))
                    return self._pages, True
                most -= len(page)
            after = page.next_after
            if page.caught_up or after >= self._head:
                return self._pages, False

    def _take(self, page: Page | None) -> Page:
        if page is None:
            raise _NotResident
        self._pages.append(page)
        self._count += len(page)
        self._size += sum(map(len, page.data))
        if not self._wait and (self._count > self._at_once or self._size > AT_ONCE_BYTES):
            raise _NotResident
        return page


def _drop(page: Page, rows: slice) -> None:
    for column in (page.seqs, page.ts, page.data, page.metas):
        del column[rows]


def _read(
    document: Document, version: Version, selection: ElementSelection, hidden: frozenset[str], *, wait: bool
) -> Elements:
    collected = _Pages(document, version, wait, PARSED_AT_ONCE if hidden else AT_ONCE)
    if selection.newest is not None:
        pages, more = collected.newest(selection.newest, selection.since, selection.capped)
    else:
        pages, more = collected.oldest(selection.oldest, selection.since)
    return Elements(b",".join([render(page, hidden) for page in pages if page.seqs]), more)


def render(page: Page, hidden: frozenset[str] = frozenset()) -> bytes:
    """Render the elements of a page as JSON, separated by commas. The meta of a record is the author's proof, with
    exactly the members that an element shows."""
    return b",".join(render_each(page, hidden))


def render_each(page: Page, hidden: frozenset[str] = frozenset()) -> list[bytes]:
    """Like :func:`render`, with each element separately."""
    data = [without(each, hidden) for each in page.data] if hidden else page.data
    return [
        b'{"ts":%d,"data":%b}' % (ts, each) if meta is None else b'{"ts":%d,"data":%b,%b' % (ts, each, meta[1:])
        for ts, each, meta in zip(page.ts, data, page.metas, strict=True)
    ]


def without(data: bytes, hidden: frozenset[str]) -> bytes:
    """The data, which is a JSON object, without its hidden fields."""
    if not hidden:
        return data
    document = parse(data)
    if hidden.isdisjoint(document):
        return data
    return canonical({name: value for name, value in document.items() if name not in hidden})
