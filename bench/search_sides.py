"""Three indexes of the same documents: Strandline's index files, tantivy, and SQLite with FTS5.

All index the same fields of the same JSON, texts with positions, and return the ids of the hits in the process of the
benchmark. Strandline also answers over HTTP, with the records.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import tantivy

from bench.pipeline_history import LOG
from bench.search_documents import FIRST
from bench.streams_load import ANSWER_SECONDS, Line
from bench.topics_server import Server, serving
from strandline.engine import Batch, Config, Engine
from strandline.engine.state.checkpoints import read_manifest
from strandline.query.index import Cover
from strandline.query.index_files.builder import Builder, Origin
from strandline.query.index_files.directory import file_name, folder_of
from strandline.query.index_files.file import open_index_file
from strandline.query.requests import read_search
from strandline.query.search import Search
from strandline.schema.registry import Registry

#: The records of an index file, as in the pipeline.
ROWS = 262_144
HITS = 10

Kind = Literal["words", "phrase", "equality", "prefix", "range"]


class Question(NamedTuple):
    """``values`` are two words, a user, the beginning of users, or a latency."""

    kind: Kind
    values: Sequence[str]


class Asked(Protocol):
    name: str

    def ask(self, question: Question) -> int:
        """Return the number of hits, at most ``HITS``."""


class Side(Asked, Protocol):
    def add(self, documents: list[bytes]) -> None: ...

    def finish(self) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


def _field(kind: str, **flags: Any) -> dict[str, Any]:
    return {"kind": kind, **flags}


FIELDS = {
    "at": _field("date", exact=True, column=True, sortable=True),
    "service": _field("keyword", exact=True, prefix=True),
    "user": _field("keyword", exact=True, prefix=True),
    "status": _field("integer", exact=True, column=True, sortable=True),
    "latency": _field("float", column=True, sortable=True),
    "note": _field("text", analyzer="unicode_word_v1", positions=True),
}
SEARCH = {
    "primaryTimestampField": "at",
    "defaultFields": [{"field": "note"}],
    "fields": {
        name: {**field, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}]} for name, field in FIELDS.items()
    },
}


class Strandline:
    """A stream whose records are all in index files. ``store`` appends the records, which is not part of indexing."""

    name = "Strandline"

    def __init__(self, path: Path, total: int) -> None:
        self._data = path
        self._total = total
        self._storing = ExitStack()
        self._engine = self._storing.enter_context(Engine.open(path))
        body = msgspec.json.encode({"schema": {"type": "object"}, "search": SEARCH})
        self._registry = Registry.empty(LOG).update(body, next_sequence=0)
        traits = {"content_type": "application/json", "created_at": FIRST}
        config = Config(durability="disk", attributes={"streams": traits})
        self._log = self._engine.create(LOG, config, notes={"registry": self._registry.stored()}).wait()
        manifest = read_manifest(self._engine.disk)
        assert manifest is not None
        self._directory = manifest.id
        self._builder: Builder | None = None
        self._first = self._next = 1
        self._files: list[Path] = []
        self._open = ExitStack()
        self._cover: Cover | None = None

    def store(self, documents: list[bytes]) -> None:
        self._log.append(Batch(documents)).wait()

    def add(self, documents: list[bytes]) -> None:
        search = self._registry.search
        assert search is not None
        if self._builder is None:
            self._first = self._next
            origin = Origin(
                directory=self._directory,
                log=LOG,
                epoch=self._log.epoch,
                first=self._first,
                last=min(self._first + ROWS - 1, self._total),
                versions=tuple(self._registry.versions),
            )
            self._builder = Builder(origin, search)
        self._builder.add(range(self._next, self._next + len(documents)), documents)
        self._next += len(documents)
        if self._next - self._first >= ROWS:
            self.finish()

    def finish(self) -> None:
        if self._builder is not None:
            made = self._builder.finish()
            self._builder = None
            path = self._data / folder_of(made.info.epoch) / file_name(made.info, made.checksum)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.content)
            self._files.append(path)

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._files)

    def ask(self, question: Question) -> int:
        search = self._registry.search
        if self._cover is None:
            files = [open_index_file(str(path)) for path in self._files]
            self._cover = Cover(tuple(chunk for file in files if (chunk := file.chunk()) is not None), 0, self._total)
        assert search is not None
        request = read_search({"q": query_of(question), "size": HITS}, search, int)
        deadline = time.perf_counter() + ANSWER_SECONDS
        found = Search(self._log, search, request, self._registry.versions, deadline).rank(self._cover, self._total)
        return len(found)

    def serve(self) -> Http:
        """Seal the history and start the server."""
        self._engine.seal()
        self._storing.close()
        server = self._open.enter_context(serving(self._data))
        return Http(self._open.enter_context(Line(server)), server)

    def close(self) -> None:
        self._storing.close()
        self._open.close()


class Http:
    """The same index files, asked over HTTP."""

    name = "Strandline over HTTP"

    def __init__(self, line: Line, server: Server) -> None:
        self._line = line
        self.server = server

    def ask(self, question: Question) -> int:
        body = msgspec.json.encode({"q": query_of(question), "size": HITS})
        answer = self._line.request("POST", f"/v1/stream/{LOG}/_search", body)
        found = answer.json()
        if answer.status != 200 or not found["coverage"]["complete"]:
            raise RuntimeError(f"not a complete answer: {answer.status} {str(found)[:500]}")
        return len(found["hits"])


def query_of(question: Question) -> str:
    """Return the question in the query language."""
    first, text = question.values[0], " ".join(question.values)
    queries = {
        "words": text,
        "phrase": f'note:"{text}"',
        "equality": f"user:{first}",
        "prefix": f"user:{first}*",
        "range": f"latency:>{first}",
    }
    return queries[question.kind]


class Tantivy:
    name = "tantivy"

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self._path = path
        builder = tantivy.SchemaBuilder()
        builder.add_date_field("at", indexed=True, fast=True)
        for name in ("service", "user"):
            builder.add_text_field(name, tokenizer_name="raw", index_option="basic", fast=True)
        builder.add_integer_field("status", indexed=True, fast=True)
        builder.add_float_field("latency", indexed=True, fast=True)
        builder.add_text_field("note", tokenizer_name="default", index_option="position")
        self._schema = builder.build()
        self._index = tantivy.Index(self._schema, str(path))
        self._writer = self._index.writer(heap_size=512 << 20, num_threads=1)

    def add(self, documents: list[bytes]) -> None:
        decode, parse, add = msgspec.json.decode, datetime.fromisoformat, self._writer.add_document
        for payload in documents:
            document = decode(payload)
            document["at"] = parse(document["at"])
            add(tantivy.Document.from_dict(document, self._schema))

    def finish(self) -> None:
        self._writer.commit()
        self._writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def size(self) -> int:
        return sum(file.stat().st_size for file in self._path.iterdir())

    def ask(self, question: Question) -> int:
        by_score = question.kind in ("words", "phrase")
        field = None if by_score else "at"
        query = self._query(question)
        return len(self._searcher.search(query, limit=HITS, count=False, order_by_field=field).hits)

    def _query(self, question: Question) -> tantivy.Query:
        make, schema, values = tantivy.Query, self._schema, list(question.values)
        match question.kind:
            case "words":
                terms = [(tantivy.Occur.Must, make.term_query(schema, "note", word)) for word in values]
                return make.boolean_query(terms)
            case "phrase":
                return make.phrase_query(schema, "note", values)  # type: ignore[arg-type]
            case "equality":
                return make.term_query(schema, "user", values[0])
            case "prefix":
                return make.regex_query(schema, "user", f"{values[0]}.*")
            case "range":
                least = float(values[0])
                return make.range_query(schema, "latency", tantivy.FieldType.Float, least, None, include_lower=False)

    def close(self) -> None:
        pass


class Sqlite:
    name = "SQLite FTS5"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0
        self._connection = sqlite3.connect(path, isolation_level=None)
        run = self._connection.execute
        run("PRAGMA journal_mode = OFF")
        run("PRAGMA synchronous = OFF")
        run("CREATE TABLE docs (id INTEGER PRIMARY KEY, at TEXT, service TEXT, user TEXT, status INT, latency REAL)")
        run("CREATE VIRTUAL TABLE notes USING fts5(note, content='')")
        run("BEGIN")

    def add(self, documents: list[bytes]) -> None:
        rows = [msgspec.json.decode(payload) for payload in documents]
        many = self._connection.executemany
        names = ("at", "service", "user", "status", "latency")
        ids = range(self._rows + 1, self._rows + len(rows) + 1)
        fields = ((id, *(row[name] for name in names)) for id, row in zip(ids, rows, strict=True))
        many("INSERT INTO docs VALUES (?, ?, ?, ?, ?, ?)", fields)
        texts = ((id, row["note"]) for id, row in zip(ids, rows, strict=True))
        many("INSERT INTO notes (rowid, note) VALUES (?, ?)", texts)
        self._rows += len(rows)

    def finish(self) -> None:
        for name in ("at", "service", "user", "status", "latency"):
            self._connection.execute(f"CREATE INDEX {name}_index ON docs ({name})")
        self._connection.execute("COMMIT")
        self._connection.execute("ANALYZE")

    def size(self) -> int:
        return self._path.stat().st_size

    def ask(self, question: Question) -> int:
        newest, first = f"ORDER BY id DESC LIMIT {HITS}", question.values[0]
        match question.kind:
            case "words" | "phrase":
                words = " ".join(question.values)
                text = f'"{words}"' if question.kind == "phrase" else words
                query = f"SELECT rowid FROM notes WHERE notes MATCH ? ORDER BY rank LIMIT {HITS}"
                return len(self._connection.execute(query, (text,)).fetchall())
            case "equality":
                query, values = f"SELECT id FROM docs WHERE user = ? {newest}", (first,)
            case "prefix":
                query, values = f"SELECT id FROM docs WHERE user GLOB ? {newest}", (f"{first}*",)
            case "range":
                query, values = f"SELECT id FROM docs WHERE latency > CAST(? AS REAL) {newest}", (first,)
        return len(self._connection.execute(query, values).fetchall())

    def close(self) -> None:
        self._connection.close()
