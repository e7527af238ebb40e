"""Live responses of regular documents: the current version as a server-sent event, and every version that replaces it.

A version is shown as a pull shows it, with the same fields to the same callers; its time is that of its push.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import UNSET

from strandline.collections.paths import DocumentPath
from strandline.collections.permissions import Caller, hidden_fields
from strandline.collections.pull import AT_ONCE_BYTES, without
from strandline.collections.regular_documents import RegularDocument
from strandline.delivery.watch import PlainSubject
from strandline.engine import Page
from strandline.protocols.collections.live_tails import HidingView, LiveTail, LiveTails
from strandline.protocols.collections.wire import DocumentAnswer, encode, stored_object
from strandline.service import sse
from strandline.service.access import Access
from strandline.signing.author_proofs import proof_of

#: The limits of one page. The hash of a version may have to be computed.
PAGE_VERSIONS = 16
PAGE_BYTES = 256 << 10


class VersionSubject(PlainSubject):
    __slots__ = ("document",)

    def __init__(self, document: RegularDocument) -> None:
        super().__init__(document.log)
        self.document = document


class LiveVersion(NamedTuple):
    """A version as an event, with its time."""

    ts: int
    frame: bytes


class VersionView(HidingView):
    __slots__ = ()

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": PAGE_VERSIONS, "max_bytes": PAGE_BYTES}

    def render(self, subject: VersionSubject, after: int, page: Page) -> list[LiveVersion]:
        return [
            LiveVersion(ts, self._frame(subject.document.hash_at(seq, data), ts, data, meta))
            for seq, ts, data, meta in zip(page.seqs, page.ts, page.data, page.metas, strict=True)
        ]

    def _frame(self, hash: str, ts: int, data: bytes, meta: bytes | None) -> bytes:
        proof = proof_of(meta)
        author, signature = (UNSET, UNSET) if proof is None else proof
        shown = DocumentAnswer(stored_object(without(data, self.hidden)), hash, ts, author, signature)
        return sse.frame(b"document", encode(shown), hash.encode())


class VersionTail(LiveTail):
    """The versions of one document. It starts with the current version, unless that has the hash ``known``."""

    __slots__ = ("_known",)

    def __init__(self, tails: LiveTails, access: Access, path: DocumentPath, caller: Caller, known: str) -> None:
        view = tails.view(VersionView, hidden_fields(path.collection, caller.roles))
        super().__init__(tails, access, path, caller, view)
        self._known = known

    def find(self) -> RegularDocument | None:
        return self._tails.context.regular_documents.find(self.key)

    def subject(self, document: RegularDocument) -> VersionSubject:
        return VersionSubject(document)

    # --- the start -------------------------------------------------------------------------------------------------

    def start_in_memory(self, document: RegularDocument) -> bool:
        """Find the version to start with. Returns False if the disk must be read, or a large version hashed."""
        page = document.log.read_back_resident(limit=1)
        if page is None or (self._known and page.seqs and len(page.data[0]) > AT_ONCE_BYTES):
            return False
        return self._start_at(document, page)

    def start_from_disk(self, document: RegularDocument) -> None:
        self._start_at(document, document.log.read_back(limit=1))

    def _start_at(self, document: RegularDocument, page: Page) -> bool:
        if not page.seqs:
            self._start = page.head
            return True
        seq = page.seqs[0]
        is_known = bool(self._known) and document.hash_at(seq, page.data[0]) == self._known
        self._start = seq if is_known else seq - 1
        return True

    # --- versions --------------------------------------------------------------------------------------------------

    def send(self, content: list[LiveVersion]) -> None:
        # Earlier versions may have expired before the current one was pushed.
        self.write(b"".join([version.frame for version in content if not self.is_expired(version.ts)]))
