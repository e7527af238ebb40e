"""The registry of a stream, as a document that is read and updated."""

from __future__ import annotations

import msgspec

from strandline.engine.ownership import REGISTRY
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import JSON
from strandline.schema.registry import Registry
from strandline.service.http import NO_STORE, Answer, Call, Later, Reply


class Schemas:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def get(self, call: Call) -> Reply:
        """GET /v1/stream/{name}/_schema"""
        return _shown(self._context.stream(call).registry)

    async def post(self, call: Call) -> Answer:
        """POST /v1/stream/{name}/_schema"""
        self._context.stream_to_change(call)
        while True:
            stream = self._context.stream(call)
            before = stream.registry
            # Compiling and proving large schemas takes too long for the loop.
            after = await self._context.workers.normal.run(before.update, call.body, next_sequence=stream.end)
            # Meanwhile the stream may have got another registry, or have been made anew.
            if self._context.stream(call) is stream and stream.registry is before:
                break
        after = after.moved(before, stream.end)
        stream.use(self._context.hub.now())
        answer: Answer | Later = self._context.admission.after(
            stream.log.note({REGISTRY: after.stored()}), lambda _: _shown(after)
        )
        return await answer if isinstance(answer, Later) else answer


def _shown(registry: Registry) -> Reply:
    return Reply(msgspec.json.encode(registry.document()), 200, JSON, (NO_STORE,))
