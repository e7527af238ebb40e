"""The logs of documents: how append-only and regular documents find, create, configure, write and list them.

A log belongs to one kind of document for as long as it exists, even if the configuration of its collection changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from strandline.collections.errors import CollectionError, invalid_path, queue_unavailable
from strandline.collections.events import AppendEvent, discard
from strandline.collections.notes import notes_of
from strandline.collections.paths import DocumentPath
from strandline.collections.permissions import Caller, check_fields_writable
from strandline.collections.settings import REPLAY_WINDOW_MS
from strandline.engine import Append, Batch, Commit, Config, Engine, Log
from strandline.engine.errors import LogFull
from strandline.engine.ownership import COLLECTION, VERSIONS
from strandline.engine.record import is_internal

#: The maximum number of documents kept in memory. Beyond that, all are dropped and looked up again.
MAX_KNOWN = 100_000
#: Names per read of a listing.
_LIST_CHUNK = 1024
#: Sorts after every name that starts with the text before it.
_LAST = "\U0010ffff"


def check_data(path: DocumentPath, data: Any, caller: Caller | None) -> dict[str, Any]:
    """Check that the data of a push is an object that the caller may send, and that it matches the schema. Raises
    :class:`CollectionError`."""
    if not isinstance(data, dict):
        raise CollectionError("invalid_data", "the data must be a JSON object")
    if caller is not None:
        check_fields_writable(path.collection, caller.roles, data)
    if path.bound.schema is not None:
        path.bound.schema.check(data)
    return data


class OpenDocument(Protocol):
    log: Log


D = TypeVar("D", bound=OpenDocument)
#: Raises CollectionError (``not_a_document``) if a log of this name may not be created for a document.
NameCheck = Callable[[str], None]


class DocumentLogs(Generic[D]):
    """The logs of one kind of document: of regular documents if ``regular``, otherwise of append-only ones. ``open``
    makes the document of a log."""

    def __init__(
        self, engine: Engine, open: Callable[[Log], D], check_name: NameCheck | None, *, regular: bool
    ) -> None:
        self._engine = engine
        self._open = open
        self._check_name = check_name
        self._regular = regular
        self._known: dict[str, D] = {}

    def find(self, key: str) -> D | None:
        """Find a document. Raises CollectionError (``not_a_document``) if the log of this name is not a document of
        this kind."""
        document = self._known.get(key)
        if document is not None and not document.log.dropped:
            return document
        log = self._log(key)
        if log is None:
            self._known.pop(key, None)
            return None
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        document = self._known[key] = self._open(log)
        return document

    def _log(self, key: str) -> Log | None:
        log = self._engine.find(key)
        if log is None:
            return None
        if COLLECTION not in log.notes:
            message = f"another protocol created the log {key!r}; it is not a document of a collection"
            raise CollectionError("not_a_document", message)
        if (VERSIONS in log.notes) is not self._regular:
            kinds = ("append-only", "regular") if self._regular else ("regular", "append-only")
            message = "the document {!r} was created by a collection of {} documents; it cannot become {}".format(
                key, *kinds
            )
            raise CollectionError("not_a_document", message)
        return log

    @contextmanager
    def created(self, path: DocumentPath, max_records: int = 0) -> Iterator[Commit[Log]]:
        """Create the log of a document. It is removed if the block raises."""
        if is_internal(path.key):
            raise invalid_path()  # such names belong to the server's internal logs
        if self._check_name is not None:
            self._check_name(path.key)
        config = _wanted(Config(), path, max_records)
        created = self._engine.create(path.key, config, notes=notes_of(path.collection))
        try:
            yield created
        except BaseException:
            discard(self._engine.log(path.key))
            raise

    def write(
        self,
        log: Log,
        batch: Batch,
        ts: int,
        request_id: str | None,
        event: AppendEvent | None,
        hash: str,
    ) -> Commit[Any]:
        """Append a record and, in the same transaction, the event of the push."""
        if event is None:
            return log.append(batch, idempotency_key=request_id, ts=ts)
        change, payload = Append(log, batch, request_id, ts), event.payload(hash, ts)
        with event.log() as topic:
            try:
                return event.after(self._engine.change_all([change, Append(topic, Batch.of(payload))]))
            except LogFull as error:
                if error.name != topic.name:
                    raise
                raise queue_unavailable(str(error)) from None


def after_creation(commit: Commit[Any], created: Commit[Log]) -> Commit[Any]:
    """The commit to wait for after the first write. The creation of a log is durable only when its own commit is done,
    regardless of the log's durability."""
    return created if commit.done and not created.done else commit


def settle(log: Log, path: DocumentPath, max_records: int = 0) -> None:
    """Apply the durability and the retention of the collection, which may have changed since the document was created.
    Waits for the disk if so."""
    config = log.config
    wanted = _wanted(config, path, max_records)
    if config != wanted:
        log.configure(wanted)


def _wanted(config: Config, path: DocumentPath, max_records: int) -> Config:
    return msgspec.structs.replace(
        config,
        durability=path.collection.durability,
        cap_records=max_records,
        retain_until_in_lake=path.collection.retain_until_in_lake,
        idempotency_window_ms=max(config.idempotency_window_ms, REPLAY_WINDOW_MS),
    )


def list_below(engine: Engine, prefix: str, after: str, most: int, belongs: Callable[[str], bool]) -> list[str]:
    """The last segments of the keys of documents that start with ``prefix`` and of which ``belongs`` is true, in order,
    beginning after ``after``."""
    items: list[str] = []
    last = prefix + after
    while True:
        names = engine.names(prefix, last, _LIST_CHUNK)
        for name in names:
            last = name
            item, slash, _ = name[len(prefix) :].partition("/")
            if slash:
                # Longer keys belong to another path; the listing skips all of them at once.
                last = f"{prefix}{item}/{_LAST}"
                break
            log = engine.find(name)
            if item and log is not None and COLLECTION in log.notes and log.head and belongs(name):
                items.append(item)
                if len(items) == most:
                    return items
        else:
            if len(names) < _LIST_CHUNK:
                return items
