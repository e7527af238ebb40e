"""The profile of a stream, as a document that is read and updated."""

from __future__ import annotations

import msgspec

from strandline.engine.ownership import PROFILE, REGISTRY
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import JSON
from strandline.schema.profiles import GENERIC, Profile, parse_profile_update, show
from strandline.schema.registry import Registry
from strandline.service.admission import Replying
from strandline.service.http import NO_STORE, Call, Reply
from strandline.service.problems import may_not_touch


class Profiling:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def get(self, call: Call) -> Reply:
        """GET /v1/stream/{name}/_profile"""
        return _shown(self._context.stream(call).profile)

    def post(self, call: Call) -> Replying:
        """POST /v1/stream/{name}/_profile: the profile, and the registry that comes with it, in one step."""
        stream = self._context.stream_to_change(call)
        profile = parse_profile_update(call.body)
        for name in profile.named_streams:
            if not call.access.may_touch(name):
                raise may_not_touch(name)
        profile.check_install(is_json=stream.is_json, is_empty=not stream.end, current=stream.profile)
        notes = notes_of(profile, profile.registry(stream.name))
        stream.use(self._context.hub.now())
        return self._context.admission.after(stream.log.note(notes), lambda _: _shown(profile))


def notes_of(profile: Profile, registry: Registry | None) -> dict[str, object]:
    """What a stream notes down when it gets the profile, and the registry that comes with it."""
    notes: dict[str, object] = {PROFILE: None if profile is GENERIC else profile.stored()}
    if registry is not None:
        notes[REGISTRY] = registry.stored()
    return notes


def _shown(profile: Profile) -> Reply:
    return Reply(msgspec.json.encode(show(profile)), 200, JSON, (NO_STORE,))
