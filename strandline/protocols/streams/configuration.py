"""_schema and _profile: the registry and the profile of a stream, as documents to read and update."""

from __future__ import annotations

from strandline.engine.ownership import JSON, PROFILE, REGISTRY
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.replies import json_reply
from strandline.schema.profiles import GENERIC, Profile, keep_hidden, parse_profile_update, show
from strandline.schema.registry import Registry
from strandline.service.admission import Replying
from strandline.service.http import Answer, Call, Later, Reply
from strandline.service.problems import may_not_touch


class Schemas:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def get(self, call: Call) -> Reply:
        """GET /v1/stream/{name}/_schema"""
        return json_reply(self._context.stream(call).registry.document())

    async def post(self, call: Call) -> Answer:
        """POST /v1/stream/{name}/_schema"""
        self._context.stream_to_change(call)
        while True:
            stream = self._context.stream(call)
            before = stream.registry
            # Compiling and checking large schemas takes too long for the event loop.
            after = await self._context.workers.normal.run(before.update, call.body, next_sequence=stream.end)
            # The stream may have got another registry meanwhile, or have been recreated.
            if self._context.stream(call) is stream and stream.registry is before:
                break
        after = after.moved(before, stream.end)
        if after.search is not None and not stream.is_json:
            raise bad_request(f"search requires a stream of {JSON}, and this one holds {stream.media_type}")
        stream.use(self._context.hub.now())
        answer: Answer | Later = self._context.admission.after(
            stream.log.note({REGISTRY: after.note()}), lambda _: json_reply(after.document())
        )
        return await answer if isinstance(answer, Later) else answer


class StreamProfiles:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def get(self, call: Call) -> Reply:
        """GET /v1/stream/{name}/_profile"""
        return json_reply(show(self._context.stream(call).profile, call.access.may_touch))

    def post(self, call: Call) -> Replying:
        """POST /v1/stream/{name}/_profile: sets the profile and its registry in one step."""
        stream = self._context.stream_to_change(call)
        profile = parse_profile_update(call.body)
        for name in profile.named_streams:
            if not call.access.may_touch(name):
                raise may_not_touch(name)
        profile = keep_hidden(profile, stream.profile, call.access.may_touch)
        profile.check_install(is_json=stream.is_json, is_empty=not stream.end, current=stream.profile)
        notes = notes_of(profile, profile.registry(stream.name))
        stream.use(self._context.hub.now())
        shown = show(profile, call.access.may_touch)
        noted = stream.log.note(notes)
        return self._context.admission.after(noted, lambda _: json_reply(shown))


def notes_of(profile: Profile, registry: Registry | None) -> dict[str, object]:
    """The notes of a stream for the profile, and for the registry that belongs to it."""
    notes: dict[str, object] = {PROFILE: None if profile is GENERIC else profile.stored()}
    if registry is not None:
        notes[REGISTRY] = registry.stored()
    return notes
