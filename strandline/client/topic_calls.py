"""Topics: requests and answers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from strandline.client import topic_types as types
from strandline.client.calls import ALWAYS, JSON, KEYED_SECONDS, AnswerReader, Request, post, put, segment
from strandline.client.topic_types import TopicConfigArguments
from strandline.nearest_name import did_you_mean

T = TypeVar("T")

#: A filter by tag: text, or in the protocol's form, ``["tag", "Eq", "x"]`` or ``["tag", "Glob", "x*"]``.
Match = str | Sequence[str]

_CONFIG_MEMBERS = frozenset(TopicConfigArguments.__annotations__)

WRITTEN = AnswerReader(types.Written)
MULTI_WRITTEN = AnswerReader(types.MultiWritten)
CONFIGURED = AnswerReader(types.Configured)
STATE = AnswerReader(types.TopicState)
LIST = AnswerReader(types.TopicList)
TOPIC_DELETED = AnswerReader(types.TopicDeleted)
RECORDS_DELETED = AnswerReader(types.RecordsDeleted)
POSITION = AnswerReader(types.ConsumerPosition)
CONSUMERS = AnswerReader(types.ConsumerList)
ALL_CONSUMERS = AnswerReader(types.ConsumersList)
CONSUMER_DELETED = AnswerReader(types.ConsumerDeleted)
ROUTER = AnswerReader(types.RouterState)
ROUTERS = AnswerReader(types.RouterList)
ROUTER_DELETED = AnswerReader(types.RouterDeleted)


@lru_cache(maxsize=256)
def page_reading(kind: Any) -> AnswerReader[types.Page[Any]]:
    return AnswerReader(types.Page[kind])


def new_key() -> str:
    """A unique idempotency key."""
    return secrets.token_hex(16)


def path_of(topic: str) -> str:
    return f"/v0/topics/{segment(topic)}"


def draft(record: T | types.Draft[T]) -> types.Draft[T]:
    """The record as a draft. Anything else is the data of a new draft."""
    return record if isinstance(record, types.Draft) else types.Draft(record)


def drafts(records: Iterable[T | types.Draft[T]]) -> list[types.Draft[T]]:
    return [draft(record) for record in records]


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


class _Write(msgspec.Struct, omit_defaults=True):
    records: list[types.Draft[Any]]
    idempotency_key: str
    node: str | None = None
    create: bool | None = None
    config: TopicConfigArguments | None = None
    disable_backpressure: bool = False


def write(
    path: str,
    records: list[types.Draft[T]],
    *,
    key: str | None,
    node: str | None = None,
    create: bool | None = None,
    config: TopicConfigArguments | None = None,
    patient: bool = False,
) -> Request:
    """Every write has an idempotency key, so it can be repeated."""
    body = _Write(records, key or new_key(), node, create, config, patient)
    target = f"{path}?return_seqs=false"
    return Request("POST", target, msgspec.json.encode(body), (JSON,), KEYED_SECONDS)


class Write(msgspec.Struct, omit_defaults=True):
    """The records for one topic, as part of a write to several topics."""

    topic: str
    records: list[Any]
    node: str | None = None
    create: bool | None = None
    config: TopicConfigArguments | None = None


def multi_write(writes: Iterable[Write], key: str | None) -> Request:
    parts = [Write(one.topic, drafts(one.records), one.node, one.create, one.config) for one in writes]
    body = {"writes": parts, "idempotency_key": key or new_key()}
    return post("/v0/write?return_seqs=false", body, repeatable=KEYED_SECONDS)


def diff(path: str, *, wait_ms: int = 0, **fields: Any) -> Request:
    body = given(**fields)
    if wait_ms:
        body["wait_ms"] = wait_ms
    return post(f"{path}/diff", body, repeatable=ALWAYS, waits=wait_ms / 1000)


def configure(path: str, config: TopicConfigArguments) -> Request:
    return put(path, checked_config(config, "configure"))


def merged_config(current: types.TopicConfig, changes: TopicConfigArguments) -> TopicConfigArguments:
    """The current configuration with changed members. A topic keeps its search configuration if none is given."""
    config = msgspec.structs.asdict(current)
    del config["search"]
    return cast(TopicConfigArguments, {**config, **changes})


def checked_config(config: TopicConfigArguments, function: str) -> TopicConfigArguments:
    """The configuration. Raises TypeError for an unknown member."""
    for name in config.keys() - _CONFIG_MEMBERS:
        near = did_you_mean(name, sorted(_CONFIG_MEMBERS))
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{near}")
    return config


def delete_records(path: str, before_seq: int | None, match: Match | None) -> Request:
    """Repeatable only with ``before_seq``: without it, a repetition could delete records written since."""
    body = given(before_seq=before_seq, match=match)
    return post(f"{path}/delete", body, repeatable=ALWAYS if before_seq is not None else 0.0)


def consumer_path(path: str, consumer: str) -> str:
    return f"{path}/consumers/{segment(consumer)}"


def router_path(name: str) -> str:
    return f"/v0/routers/{segment(name)}"


def watch_options(
    without_nodes: str | Sequence[str] | None, strong: bool, match: Match | None = None
) -> dict[str, Any]:
    """The options for all topics of a watch."""
    options = given(node=without_nodes, match=match, consistency="strong" if strong else None)
    return {"include_tags": True, **options}
