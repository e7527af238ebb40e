"""One document of a collection: its elements or versions, with their authors."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from strandline.collections.documents import Document
from strandline.collections.pull import is_expired
from strandline.collections.regular_documents import RegularDocument
from strandline.engine import Log, Record
from strandline.engine.ownership import COLLECTION, VERSIONS
from strandline.protocols.console.collection_answers import (
    ConsoleDocumentAnswer,
    ElementRow,
    ElementsAnswer,
    ServedBy,
    Signature,
)
from strandline.protocols.console.collections import bound_collections, document_row
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.read import MAX_BYTES
from strandline.service.http import Call, Reply
from strandline.service.parameters import number
from strandline.service.problems import NOT_FOUND, Refusal
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, DOMAIN, holds, proof_of
from strandline.signing.canonical_json import parse
from strandline.signing.keyring import ENCRYPTED, EPOCH

DEFAULT_LIMIT = 50
#: The maximum number of elements in an answer. The signature of each is checked, which takes a tenth of a millisecond.
MAX_LIMIT = 200

_PADDING = re.compile("=*$")


class ConsoleDocuments:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def document(self, call: Call) -> Reply:
        """GET /console/api/document/{name}"""
        log = self._document(call)
        return await self._context.work(lambda: Reply(msgspec.json.encode(self._described(log))))

    async def elements(self, call: Call) -> Reply:
        """GET /console/api/document/{name}/elements"""
        log = self._document(call)
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        before = number(call, "before")

        def look() -> Reply:
            page = log.read_back(before, limit, max_bytes=MAX_BYTES)
            domain = DOCUMENT_DOMAIN if VERSIONS in log.notes else DOMAIN
            elements = [element_of(log.name, record, domain) for record in page]
            next = None if page.caught_up or not page.seqs else page.seqs[0]
            return Reply(msgspec.json.encode(ElementsAnswer(elements=elements[::-1], next=next)))

        return await self._context.work(look)

    def _document(self, call: Call) -> Log:
        log = self._context.log(call)
        if COLLECTION not in log.notes:
            raise Refusal(NOT_FOUND, f"the log {log.name!r} is not a document of a collection")
        return log

    def _described(self, log: Log) -> ConsoleDocumentAnswer:
        collections, regular = self._context.collections, VERSIONS in log.notes
        serving = [
            bound
            for bound in bound_collections(collections)
            if collections.namespaces[bound.namespace].serves(log.name, bound)
        ]
        version = (RegularDocument if regular else Document)(log).version_from_disk()
        row, now = document_row(log), self._context.hub.now()
        return ConsoleDocumentAnswer(
            **msgspec.structs.asdict(row),
            collection=log.notes[COLLECTION],
            kind="regular" if regular else "append-only",
            hash=version.hash,
            checkpoint=None if regular else version.ts,
            expired=any(is_expired(bound.collection, version.ts, now) for bound in serving),
            head=log.head,
            served_by=[ServedBy(namespace=bound.namespace, name=bound.collection.name) for bound in serving],
        )


def element_of(document: str, record: Record, domain: bytes) -> ElementRow:
    proof = proof_of(record.meta)
    signature: Signature = "none"
    if proof is not None:
        signature = "valid" if holds(proof, document, record.data, domain) else "invalid"
    row = ElementRow(seq=record.seq, ts=record.ts, data=msgspec.Raw(record.data), signature=signature)
    if proof is not None:
        row.author = proof.public_key
    if ENCRYPTED.encode() in record.data:
        _note_encryption(row, parse(record.data))
    return row


def _note_encryption(row: ElementRow, data: Any) -> None:
    """Clients store an encrypted element as base64, with the number of the epoch of its key."""
    sealed, epoch = data.get(ENCRYPTED), data.get(EPOCH)
    if isinstance(sealed, str):
        row.encrypted_bytes = len(_PADDING.sub("", sealed)) * 3 // 4
        if type(epoch) is int and epoch >= 0:
            row.epoch = epoch
