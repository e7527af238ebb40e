"""Answers that are written as bytes, and the types of the client, agree with the declared structs."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pytest
from msgspec import UnsetType
from support.topics_client import Client

from strandline.client import queue_calls, topic_calls, topic_types
from strandline.protocols.topics import event_frames, message_frames, wire
from strandline.service.log_config import ConfigShown, TopicConfig

FULL = {"data": {"a": [1, "ä"]}, "tag": "t", "node": "n", "meta": {"m": None}}


def check(raw: bytes | str, shape: type[msgspec.Struct]) -> Any:
    """Decode real bytes with their struct. Encoded again they have the same members in the same order."""
    value = msgspec.json.decode(raw, type=shape)
    assert members(msgspec.json.encode(value)) == members(raw)
    return value


def members(raw: bytes | str) -> Any:
    return json.loads(raw, object_pairs_hook=list)


# --- answers that are written as bytes -----------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?return_seqs=false"])
@pytest.mark.parametrize("config", [{}, {"type": "queue"}, {"durability": "fsync"}])
def test_the_answer_to_a_write(client: Client, topic: str, query: str, config: dict[str, Any]) -> None:
    client.put(topic, **config)
    for records in ([{"data": 1}], [FULL, FULL]):
        answer = client.request("POST", f"/v0/topics/{topic}{query}", {"records": records})
        check(answer.content, wire.WriteAnswer)


def test_a_page_of_records(client: Client, topic: str) -> None:
    client.put(topic, cap_records=3)
    client.write(topic, [1, 2, FULL, 4, FULL])
    for body in ({}, {"include_tags": True}, {"include_meta": False}, {"from_seq": 4}, {"from_seq": 5}):
        answer = client.request("POST", f"/v0/topics/{topic}/diff", body)
        page = check(answer.content, wire.DiffAnswer)
        assert (page.tombstone is None) == ("from_seq" in body)


def test_a_page_of_rendered_spans(client: Client, topic: str) -> None:
    client.write(topic, [FULL] * 600)
    page = check(client.request("POST", f"/v0/topics/{topic}/diff", {"limit": 500}).content, wire.DiffAnswer)
    assert len(page.records) == 500


@pytest.mark.parametrize("options", [{}, {"include_tags": True}, {"include_data": False}])
def test_the_events_of_a_watch(client: Client, topic: str, options: dict[str, Any]) -> None:
    client.put(topic, cap_records=2)
    client.write(topic, [1, FULL, 3])
    wid = client.call("POST", "/v0/watch", {"topics": {topic: {}}, **options})["wid"]
    with client.events(f"/v0/watch/{wid}") as stream:
        check(stream.wait_for("tombstone").data or "", event_frames.TombstoneEvent)
        check(stream.wait_for("record").data or "", event_frames.RecordEvent)
        check(stream.wait_for("caught-up").data or "", event_frames.CaughtUpEvent)


def test_the_messages_of_a_websocket(client: Client, topic: str) -> None:
    with client.websocket() as ws:

        def reply(shape: type[msgspec.Struct], **command: Any) -> Any:
            if command:
                ws.send({"topic": topic, "request_id": "r", **command})
            return check(ws.connection.recv(timeout=20), shape)

        reply(message_frames.PublishAck, op="publish", records=[FULL])
        reply(message_frames.Subscribed, op="subscribe")
        reply(message_frames.RecordMessage)
        reply(message_frames.CaughtUp)
        reply(message_frames.Unsubscribed, op="unsubscribe")
        ws.send({"op": "publish", "topic": topic, "records": [FULL], "return_seqs": False})
        raw = ws.connection.recv(timeout=20)
        ack = msgspec.json.decode(raw, type=message_frames.PublishAck)
        assert json.loads(msgspec.json.encode(ack)) == json.loads(raw)


# --- the types of the client ---------------------------------------------------------------------------------------

#: What the client decodes, and the answers that it decodes with it.
DECODED: list[tuple[type[Any], tuple[type[msgspec.Struct], ...]]] = [
    (topic_types.Written, (wire.WriteAnswer, wire.Written)),
    (topic_types.MultiWritten, (wire.MultiWriteAnswer,)),
    (topic_types.Page, (wire.DiffAnswer,)),
    (topic_types.TopicConfig, (ConfigShown,)),
    (topic_types.Configured, (wire.TopicPut,)),
    (topic_types.TopicState, (wire.TopicState,)),
    (topic_types.TopicList, (wire.TopicList,)),
    (topic_types.TopicDeleted, (wire.TopicDeleted,)),
    (topic_types.RecordsDeleted, (wire.RecordsDeleted,)),
    (topic_types.ConsumerPosition, (wire.ConsumerAnswer,)),
    (topic_types.ConsumerList, (wire.ConsumerList,)),
    (topic_types.ConsumersList, (wire.ConsumersList,)),
    (topic_types.ConsumerDeleted, (wire.ConsumerDeleted,)),
    (topic_types.RouterState, (wire.RouterPut, wire.RouterState, wire.RouterRow)),
    (topic_types.RouterDeleted, (wire.RouterDeleted,)),
    (topic_types.Tombstone, (wire.LostRange, event_frames.TombstoneEvent)),
    (topic_types.Arrived, (event_frames.RecordEvent,)),
    (topic_types.CaughtUp, (event_frames.CaughtUpEvent,)),
    (topic_types.Deleted, (event_frames.TopicDeletedEvent,)),
    (queue_calls.Claimed, (wire.ClaimAnswer,)),
    (queue_calls.Job, (wire.Job,)),
    (queue_calls.Acked, (wire.AckAnswer,)),
    (queue_calls.Nacked, (wire.NackAnswer,)),
    (queue_calls.Extended, (wire.ExtendAnswer,)),
    (queue_calls.Redriven, (wire.RedriveAnswer,)),
]


@pytest.mark.parametrize(("decoded", "answers"), DECODED, ids=lambda one: getattr(one, "__name__", ""))
def test_the_client_decodes_what_is_declared(decoded: type[Any], answers: tuple[type[msgspec.Struct], ...]) -> None:
    known = {field.encode_name for answer in answers for field in msgspec.structs.fields(answer)}
    # What begins with an underscore is the client's own, and in no answer.
    members = {field.encode_name for field in msgspec.structs.fields(decoded)}
    assert {member for member in members if not member.startswith("_")} <= known
    for answer in answers:
        assert list(differences(decoded, answer)) == []


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (topic_types.Draft, wire.WriteRecord),
        (topic_calls.Write, wire.OneWrite),
        (topic_types.TopicConfigArguments, TopicConfig),
    ],
)
def test_the_client_sends_what_is_declared(sent: Any, body: type[msgspec.Struct]) -> None:
    declared = {field.encode_name: field.type for field in msgspec.structs.fields(body)}
    for name, kind in get_type_hints(sent).items():
        assert takes(declared[name], kind), (name, kind, declared[name])


def test_a_member_that_does_not_fit_is_noticed() -> None:
    class Decoded(msgspec.Struct):
        topic: int
        deleted: bool
        nothing: str

    assert list(differences(Decoded, wire.TopicDeleted)) == ["Decoded.topic", "Decoded.nothing"]


def differences(decoded: Any, answer: Any) -> Iterator[str]:
    """The members of a client's struct that cannot be decoded from this answer, or may be missing in it."""
    declared = {field.encode_name: field for field in msgspec.structs.fields(answer)}
    for field in msgspec.structs.fields(decoded):
        found = declared.get(field.encode_name)
        is_sent = found is not None and UnsetType not in list(alternatives(found.type))
        if (field.required and not is_sent) or (found is not None and not takes(field.type, found.type)):
            yield f"{decoded.__name__}.{field.name}"


def takes(wanted: Any, given: Any) -> bool:
    """Whether every value of one type is a value of the other, as far as JSON is concerned."""
    accepted = list(alternatives(wanted))
    return all(any(_takes(one, other) for one in accepted) for other in alternatives(given) if other is not UnsetType)


def _takes(wanted: Any, given: Any) -> bool:
    if Any in (wanted, given) or wanted is msgspec.Raw or isinstance(wanted, TypeVar) or wanted == given:
        return True
    origin, other = get_origin(wanted) or wanted, get_origin(given) or given
    if other is event_frames.WatchedRecord:
        other = wire.ReadRecord  # the client always asks for the data
    if isinstance(origin, msgspec.StructMeta) and isinstance(other, msgspec.StructMeta):
        return not list(differences(origin, other))
    if wanted == dict[str, Any] and isinstance(other, msgspec.StructMeta):
        return True
    if is_typeddict(origin) and isinstance(other, msgspec.StructMeta):
        members = get_type_hints(origin)
        fields = msgspec.structs.fields(other)
        return all(takes(members.get(field.encode_name), field.type) for field in fields)
    if isinstance(origin, msgspec.StructMeta):
        # The configuration is sent as a mapping of its own type.
        return given is topic_types.TopicConfigArguments
    if origin is dict and other is dict:
        # Names of members are text, also where the client makes numbers of them.
        return takes(get_args(wanted)[1], get_args(given)[1])
    if origin is list and other is list:
        return takes(get_args(wanted)[0], get_args(given)[0])
    return wanted is str and isinstance(given, str)


def alternatives(kind: Any) -> Iterator[Any]:
    """The types of a union without their constraints. The values of a literal are alternatives."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from alternatives(get_args(kind)[0])
    elif origin in (Union, types.UnionType):
        for one in get_args(kind):
            yield from alternatives(one)
    elif origin is Literal:
        yield from get_args(kind)
    else:
        yield kind
