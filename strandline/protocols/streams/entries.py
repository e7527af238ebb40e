"""The body of a request as records: bytes are one record; of JSON an array is as many as it has elements."""

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
    """The values in a JSON body: one level of an array is taken apart. Refuses more than ``most``."""
    try:
        if not body.isascii():
            # What is kept raw is not looked at when it is decoded, but whoever reads it must be able to.
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
    """A batch of what is in the body, as it came; None if it is an empty array."""
    values = split_json(body, most)
    if not values:
        return None
    return Batch(values, None if key is None else [key] * len(values))


def checked_batch(
    body: bytes, key: str | None, most: int, registry: Registry, profile: Profile, now: int
) -> Batch | None:
    """The same, put into form by the profile, checked against the schema, and with the keys that these say."""
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
    """A batch of the body itself. What there is a schema for cannot be just bytes."""
    if registry is not None and registry.current_version:
        raise bad_request("stream requires JSON")
    return Batch([body], None if key is None else [key])
