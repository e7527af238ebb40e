"""Collections: public types, requests, signatures and answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import field

from strandline.client.calls import ALWAYS, JSON, Answer, Request, get, segment
from strandline.client.credentials import Credential
from strandline.client.errors import BadAnswer
from strandline.signing import author_proofs, signed_requests
from strandline.signing.author_proofs import Proof
from strandline.signing.canonical_json import NotJson, canonical, parse

T = TypeVar("T")

#: The default member of a document that holds its elements; a collection can configure another one.
USUAL_FIELD = "items"
#: Whether an element with the wrong author, or one that cannot be decrypted, raises an error or is skipped.
ElementErrors = Literal["throw", "skip"]


class Element(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """An element of a document. ``ts`` is in milliseconds and unique within the document.

    The signature covers the data as stored. If the stored data is encrypted and ``data`` is decrypted, the signature
    does not match ``data``; it was checked before decryption if verification is on.
    """

    ts: int
    data: T
    author: str | None = field(default=None, name="authorPubkey")
    signature: str | None = field(default=None, name="authorSignature")


class Appended(msgspec.Struct, frozen=True):
    """``timestamp`` is the time of the element. ``hash`` is the hash of the document that ends with the element. It is
    None if the answer was lost and the client found the element by reading the document."""

    hash: str | None
    timestamp: int


class Pulled(msgspec.Struct, Generic[T], frozen=True):
    """Elements of a document, ordered by time. ``hash`` identifies the version of the document and is empty if the
    document does not exist. ``timestamp`` is the time of the pull. ``more``: the server returned only the oldest
    requested elements, and there are more after the last one."""

    elements: list[Element[T]]
    hash: str
    timestamp: int
    more: bool = False


class DocumentVersion(msgspec.Struct, Generic[T], frozen=True):
    """A version of a regular document. ``data`` is None if the document does not exist; its ``hash`` is empty then.
    ``timestamp`` is the time of the pull, or of the push if the document is followed with ``live``."""

    data: T | None
    hash: str
    timestamp: int
    author: str | None = None
    signature: str | None = None


class Pushed(msgspec.Struct, frozen=True):
    """The hash of the new version of a regular document, and its time. The time is None if the answer was lost and the
    client found out by the hash that the version was stored."""

    hash: str
    timestamp: int | None


class DocumentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One document of a batch pull: the parameters of its path, and the range of elements. A ``regular`` document has
    no elements."""

    params: dict[str, str | int] = {}
    regular: bool = False
    since: int | None = None
    last: int | None = None
    limit: int | None = None
    field: str = USUAL_FIELD


class NotPulled(msgspec.Struct, frozen=True):
    """The error code for one document of a batch. The other documents are not affected."""

    code: str


Entry = Pulled[dict[str, Any]] | DocumentVersion[dict[str, Any]] | NotPulled


# --- requests and answers -------------------------------------------------------------------------------------------

Data = dict[str, Any]


def prefix_of(namespace: str | None) -> str:
    return "" if namespace is None else f"/v1/{segment(namespace)}"


def path_of(document_key: str) -> str:
    """The path of a document in URLs, after ``/pull/`` or ``/push/``."""
    return "/".join(map(segment, document_key.split("/")))


def document_of(data: object) -> Data:
    """The data as a JSON object. Raises TypeError if it is not an object."""
    try:
        text = msgspec.json.encode(data)
    except UnicodeEncodeError:
        # The text contains unpaired surrogates.
        text = json.dumps(data).encode()
    document = parse(text)
    if not isinstance(document, dict):
        raise TypeError(
            f"the data of an element must be a JSON object (a dict, Struct or dataclass), got {type(data).__name__}"
        )
    return document


def append(prefix: str, document_key: str, document: Data, ts: int | None, proof: Proof | None) -> Request:
    """An append with ``ts`` can be repeated: if it was applied, the server refuses the same time again. Without ``ts``
    a repetition would append a second element."""
    if ts is not None and ts < 0:
        raise ValueError(f"ts must not be negative, got {ts}")
    given = {} if ts is None else {"ts": ts}
    return _pushing(prefix, document_key, document, given, proof, repeatable=0.0 if ts is None else ALWAYS)


def push(prefix: str, document_key: str, document: Data, base_hash: str | None, proof: Proof | None) -> Request:
    """A push of a regular document can be repeated: if it was applied, the server refuses the same base again."""
    return _pushing(prefix, document_key, document, {"baseHash": base_hash}, proof, repeatable=ALWAYS)


def _pushing(
    prefix: str, document_key: str, document: Data, given: Data, proof: Proof | None, repeatable: float
) -> Request:
    body: dict[str, Any] = {"data": document, **given}
    if proof is not None:
        body |= {"authorPubkey": proof.public_key, "authorSignature": proof.signature}
    try:
        text = msgspec.json.encode(body)
    except UnicodeEncodeError:
        text = json.dumps(body).encode()
    return Request("POST", f"{prefix}/push/{path_of(document_key)}", text, (JSON,), repeatable=repeatable)


def pull(prefix: str, document_key: str, since: int | None, last: int | None, limit: int | None, full: bool) -> Request:
    bounds = {"checkpoint": since, "limit": limit, "last": last}
    if any(bound is not None and bound < 0 for bound in bounds.values()):
        raise ValueError("since, last and limit must not be negative")
    if full and any(bound is not None for bound in bounds.values()):
        raise ValueError("full cannot be combined with since, last or limit")
    if not full and all(bound is None for bound in bounds.values()):
        raise ValueError("nothing selects the elements to pull: give since, last, limit or full")
    return get(f"{prefix}/pull/{path_of(document_key)}", bounds | ({"full": True} if full else {}))


def live_target(prefix: str, document_key: str) -> str:
    return f"{prefix}/live/{path_of(document_key)}"


def pull_document(prefix: str, document_key: str) -> Request:
    return get(f"{prefix}/pull/{path_of(document_key)}")


def batch_pull(prefix: str, asks: Mapping[str, Sequence[DocumentRequest]]) -> Request:
    names = list(asks)
    if any("," in name for name in names):
        raise ValueError("a collection name must not contain a comma")
    bounds = {name: [_bounds(ask) for ask in asks[name]] for name in names}
    query = {
        "collections": ",".join(names),
        "params": canonical({name: [ask.params for ask in asks[name]] for name in names}).decode(),
        "appendParams": canonical(bounds).decode(),
    }
    return get(f"{prefix}/batch/pull", query)


def _bounds(ask: DocumentRequest) -> dict[str, int] | None:
    given = {"since": ask.since, "last": ask.last, "limit": ask.limit}
    bounds = {name: bound for name, bound in given.items() if bound is not None}
    if ask.regular and bounds:
        raise ValueError("a regular document has no elements: since, last and limit cannot be given")
    return None if ask.regular else bounds


def proof_by(credential: Credential, document_key: str, document: Data, domain: bytes = author_proofs.DOMAIN) -> Proof:
    """The proof that the holder of the credential wrote the document."""
    proof = author_proofs.sign(credential.signer, document_key, document, domain)
    return Proof(credential.author, proof.signature)


class Signing:
    """Signs the attempts of one request. Each attempt gets its own signature, because a server accepts one once."""

    def __init__(self, credential: Credential | None, url: Callable[[], str], clock: Callable[[], float]) -> None:
        """``url`` returns the URL of the server that the next attempt is for."""
        self.credential = credential
        self._url = url
        self._clock = clock
        #: The number of signed attempts.
        self.tries = 0

    def __call__(self, request: Request) -> Request:
        self.tries += 1
        credential = self.credential
        if credential is None:
            return request
        now, url = int(self._clock() * 1000), self._url()
        host = signed_requests.host_of(url)
        headers = signed_requests.sign(credential.signer, request.method, request.target, host, request.body, now)
        headers["Authorization"] = credential.authorization
        if credential.names_presenter:
            headers[signed_requests.PRESENTER_HEADER] = credential.signer.public
        encoded = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())
        return msgspec.structs.replace(request, headers=(*request.headers, *encoded), server=url)


class _Pulled(msgspec.Struct):
    data: dict[str, Any]
    hash: str
    timestamp: int
    more: bool = False


class _Document(msgspec.Struct, rename="camel"):
    data: dict[str, Any]
    hash: str
    timestamp: int
    author_pubkey: str | None = None
    author_signature: str | None = None
    keyring: Any = None


class _Batch(msgspec.Struct):
    collections: dict[str, list[dict[str, Any]]]


def read_appended(answer: Answer) -> Appended:
    appended: Appended = _convert(_parse(answer.body), Appended)
    return appended


def read_pulled(answer: Answer, field: str) -> Pulled[Data]:
    return _pulled(_parse(answer.body), field)


def read_pushed(answer: Answer) -> Pushed:
    pushed: Pushed = _convert(_parse(answer.body), Pushed)
    return pushed


def read_document(answer: Answer) -> DocumentVersion[Data]:
    """The document as it is stored."""
    return _version(_parse(answer.body))


def read_version(event: bytes) -> DocumentVersion[Data]:
    """The version in an event, as it is stored."""
    return _version(_parse(event))


def read_batch(answer: Answer, asks: Mapping[str, Sequence[DocumentRequest]]) -> dict[str, list[Entry]]:
    batch: _Batch = _convert(_parse(answer.body), _Batch)
    entries: dict[str, list[Entry]] = {}
    for name, asked in asks.items():
        told = batch.collections.get(name, [])
        if len(told) != len(asked):
            raise BadAnswer(f"the server returned {len(told)} documents of {name}, expected {len(asked)}")
        entries[name] = [
            NotPulled(str(entry["error"])) if "error" in entry else _entry(entry, ask)
            for entry, ask in zip(told, asked, strict=True)
        ]
    return entries


def _entry(entry: Any, ask: DocumentRequest) -> Entry:
    return _version(entry) if ask.regular else _pulled(entry, ask.field)


def _version(document: Any) -> DocumentVersion[Data]:
    told: _Document = _convert(document, _Document)
    return DocumentVersion(
        told.data if told.hash else None, told.hash, told.timestamp, told.author_pubkey, told.author_signature
    )


def _pulled(document: Any, field: str) -> Pulled[Data]:
    told: _Pulled = _convert(document, _Pulled)
    # A document that has expired lacks the field.
    elements: list[Element[Data]] = _convert(told.data.get(field, []), list[Element[dict[str, Any]]])
    return Pulled(elements, told.hash, told.timestamp, told.more)


def _parse(text: bytes) -> Any:
    try:
        return parse(text)
    except NotJson as error:
        raise BadAnswer(f"the server sent an unexpected answer: {error}") from error


def _convert(document: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"the server sent an unexpected answer: {error}") from error
