"""The body of a request as records: one record of bytes, or one record per element of a JSON array."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from strandline.engine import Batch
from strandline.protocols.streams.errors import bad_request, too_many_records
from strandline.schema.profiles import Profile
from strandline.schema.registry import Registry

_array = msgspec.json.Decoder(list[Raw])
_value = msgspec.json.Decoder(Raw)
_documents = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()

_SPACE = b" \t\r\n"


def split_json(body: bytes, most: int) -> list[Raw]:
    """The values in a JSON body: the elements of an array, or one value. Refuses more than ``most``."""
    try:
        if not body.isascii():
            # Raw values are not decoded here, but readers must be able to decode them.
            body.decode()
        if body[:1] == b"[" or body.lstrip(_SPACE)[:1] == b"[":
            values = _array.decode(body)
            if len(values) > most:
                raise too_many_records(most)
            return values
        return [_value.decode(body)]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None


def json_batch(body: bytes, key: str | None, most: int) -> Batch | None:
    """A batch of the values of the body, unchanged; None if it is an empty array."""
    values = split_json(body, most)
    if not values:
        return None
    if len(values) == 1:
        # The engine takes a single record of bytes without further checks.
        return Batch((bytes(values[0]),), None if key is None else (key,))
    return Batch(values, None if key is None else [key] * len(values))


def checked_batch(
    body: bytes, key: str | None, most: int, registry: Registry, profile: Profile, now: int
) -> Batch | None:
    """Like ``json_batch``, with records normalized by the profile, checked against the schema, and with their keys."""
    values = split_json(body, most)
    if not values:
        return None
    documents: list[Any] = [_documents.decode(value) for value in values]
    data: list[bytes | Raw] = list(values)
    if profile.normalises:
        documents = profile.normalise(documents, now)
        data = [_encoder.encode(document) for document in documents]
    else:
        profile.normalise(documents, now)
    registry.check(documents)
    keys = registry.keys_of(documents, key)
    if keys is None and key is None:
        keys = profile.keys_of(documents)
    return Batch(data, keys)


def byte_batch(body: bytes, key: str | None, registry: Registry | None = None) -> Batch:
    """A batch with the body as one record. A stream with a schema does not accept bytes."""
    if registry is not None and registry.current_version:
        raise bad_request("stream requires JSON")
    return Batch([body], None if key is None else [key])
