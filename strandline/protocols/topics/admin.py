"""Topics: create, configure, get, list and delete."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
from msgspec import UNSET

from strandline.delivery.queues import QueueFigures
from strandline.engine import Config, LogState
from strandline.engine.commit import Commit
from strandline.engine.record import FLUSHED
from strandline.nearest_name import decode_body
from strandline.protocols.topics.consumers import consumers_of
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import TOPIC_EXISTS_INCOMPATIBLE, TOPIC_HAS_FORKS, TOPIC_NOT_EMPTY
from strandline.protocols.topics.list import cursor_behind, page_size, start_after
from strandline.protocols.topics.topics import Topic, new_topic
from strandline.protocols.topics.wire import QueueState, TopicDeleted, TopicList, TopicPut, TopicRow, TopicState
from strandline.service.catalog import check_change, is_hidden
from strandline.service.http import Call, Later, Reply, json_reply
from strandline.service.log_config import (
    TopicConfig,
    check_config,
    check_name,
    engine_config,
    keep_hidden,
    search_note,
    shown_config,
    wanted_search,
)
from strandline.service.problems import Refusal

_decoder = msgspec.json.Decoder(TopicConfig)


class TopicAdministration:
    def __init__(self, context: Context) -> None:
        self._context = context

    def put(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """PUT /v0/topics/{topic}"""
        wanted = decode_body(_decoder, call.body) if call.body else TopicConfig()
        check_config(wanted, call.access)
        name = call.param("topic")
        # Other protocols may have created a log with a name that a new topic cannot have.
        topic = self._context.topics.find(name)
        if topic is not None and is_hidden(topic.log):
            raise _has_forks(topic)
        if topic is None:
            check_name(name)
            topic, created = self._context.topics.create(name, new_topic(name, wanted))
            return self._context.admission.after(created, lambda _: self._put_reply(call, topic, created=True))
        return self._configure(call, topic, wanted)

    def _configure(self, call: Call, topic: Topic, wanted: TopicConfig) -> Reply | Later | Awaitable[Reply]:
        check_change(topic.log)
        existing = topic.traits.type
        kind = wanted.kind(existing)
        if kind != existing:
            detail = {"topic": topic.name, "existing_type": existing, "requested_type": kind}
            raise Refusal(TOPIC_EXISTS_INCOMPATIBLE, "the type of a topic cannot be changed", detail)
        config = engine_config(topic.name, keep_hidden(wanted, topic.traits, call.access), kind)
        # Attributes of other protocols stay as they are.
        config = msgspec.structs.replace(config, attributes={**topic.log.config.attributes, **config.attributes})
        changed = config != topic.log.config
        search = wanted_search(wanted)
        if changed:
            self._context.topics.check_dead_letter(topic.name, config)
        # The search configuration first: if it is too large to be stored, nothing is changed.
        note = search_note(topic.name, topic.log.notes, search)
        noted = topic.log.note(note) if note else None
        if changed:
            return self._change(call, topic, config)
        if noted is None:
            return self._put_reply(call, topic, created=False)
        return self._context.admission.after(noted, lambda _: self._put_reply(call, topic, created=False))

    async def _change(self, call: Call, topic: Topic, config: Config) -> Reply:
        # It waits for pending changes, also of notes, which the event loop must not do.
        def configure() -> Commit[LogState]:
            commit = topic.log.configure(config)
            commit.wait()
            return commit

        await self._context.workers.normal.run(configure)
        if topic.traits.type == "queue":
            self._context.queue(topic)
        return self._put_reply(call, topic, created=False)

    def _put_reply(self, call: Call, topic: Topic, *, created: bool) -> Reply:
        config = shown_config(topic.log.config, topic.traits, topic.log.notes, call.access)
        warning = self._context.kernel.lake_warning() if topic.log.config.retain_until_in_lake else ""
        warnings = [warning] if warning else UNSET
        answer = TopicPut(topic.name, created, config, warnings, performance=performance(call))
        return json_reply(answer, 201 if created else 200)

    def get(self, call: Call) -> Reply | Awaitable[Reply]:
        """GET /v0/topics/{topic}"""
        topic = self._context.topics.get(call.param("topic"))
        unfinished = self._context.catch_up(topic)
        if unfinished is not None:
            return self._state_later(call, topic, unfinished)
        if topic.traits.type == "log":
            return self._state(call, topic, None)
        kernel = self._context.kernel
        if kernel.queue_figures_resident(topic.log):
            return self._state(call, topic, kernel.queue_figures(topic.log))
        return self._state_later(call, topic, None)

    async def _state_later(self, call: Call, topic: Topic, unfinished: Commit[Any] | None) -> Reply:
        context, figures = self._context, None
        await context.caught_up(topic, unfinished)
        if topic.traits.type == "queue":
            figures = await context.workers.normal.run(context.kernel.queue_figures, topic.log)
        return self._state(call, topic, figures)

    def _state(self, call: Call, topic: Topic, figures: QueueFigures | None) -> Reply:
        context = self._context
        if call.flag("touch", True):
            context.consumed(topic)
        state = topic.log.state()
        traits = topic.traits
        return json_reply(
            TopicState(
                topic=topic.name,
                type=traits.type,
                head_seq=state.head,
                earliest_seq=state.earliest,
                next_seq=state.head + 1,
                count=state.count,
                bytes=state.size,
                config=shown_config(state.config, traits, topic.log.notes, call.access),
                queue=UNSET if figures is None else _queue_state(figures),
                consumers=consumers_of(topic) or UNSET,
                effective_priority=topic.priority(context.hub.now()),
                last_write_ts=state.last_ts or None,
                last_read_ts=topic.consumed_at,
                performance=performance(call),
            )
        )

    def list(self, call: Call) -> Reply:
        """GET /v0/topics"""
        context, now = self._context, self._context.hub.now()
        found, more = context.topics.page(call.query.get("prefix", ""), start_after(call), page_size(call), call.access)
        if call.flag("touch", False):
            for topic in found:
                context.consumed(topic)
        rows = [_row(topic, now) for topic in found]
        cursor = cursor_behind(found[-1].name) if more else UNSET
        return json_reply(TopicList(rows, cursor, performance=performance(call)))

    def delete(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """DELETE /v0/topics/{topic}"""
        context = self._context
        name = call.param("topic")
        topic = context.topics.find(name)
        if topic is None or is_hidden(topic.log):
            return _deleted(call, name, False, [])
        check_change(topic.log)
        if call.flag("if_empty", False):
            count = topic.log.state().count
            if count:
                detail = {"topic": name, "count": count}
                raise Refusal(
                    TOPIC_NOT_EMPTY, f"topic {name!r} has {count} records; delete them first, or omit if_empty", detail
                )
        if topic.log.forks:
            raise _has_forks(topic)
        context.kernel.check_removable(topic.log, call.access)
        removed = context.routers.remove_touching(topic.log)
        commit = context.kernel.catalog.drop(topic.log)
        return context.admission.after(commit, lambda _: _deleted(call, name, True, removed))


def _has_forks(topic: Topic) -> Refusal:
    name, forks = topic.name, topic.log.forks
    detail = {"topic": name, "forks": forks}
    return Refusal(TOPIC_HAS_FORKS, f"{forks} streams are forked from {name!r}; delete them first", detail)


def _queue_state(figures: QueueFigures) -> QueueState:
    counters, rates, oldest_ready_ms = figures
    return QueueState(
        ready=counters.ready,
        in_flight=counters.in_flight,
        delayed=counters.delayed,
        dead_lettered=counters.dead_lettered,
        dropped=counters.dropped,
        oldest_ready_ms=oldest_ready_ms,
        throughput=round(rates.throughput, 3),
        failure_rate=round(rates.failure_rate, 4),
    )


def _row(topic: Topic, now: int) -> TopicRow:
    state = topic.log.state()
    return TopicRow(
        topic=topic.name,
        type=topic.traits.type,
        head_seq=state.head,
        earliest_seq=state.earliest,
        count=state.count,
        bytes=state.size,
        durable=state.config.durability in FLUSHED,
        effective_priority=topic.priority(now),
    )


def _deleted(call: Call, name: str, deleted: bool, routers: list[str]) -> Reply:
    return json_reply(TopicDeleted(name, deleted, routers, performance=performance(call)))
