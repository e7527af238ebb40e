"""DELETE: taking a stream away."""

from __future__ import annotations

from strandline.protocols.http import Call, Refusal, Reply
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.replies import NO_STORE
from strandline.protocols.streams.streams import SYSTEM, check_name
from strandline.protocols.turns import Replying


class Deleting:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def delete(self, call: Call) -> Replying:
        """DELETE /v1/stream/{name}. Repeating it is no error; a stream that never was is."""
        context, streams = self._context, self._context.streams
        context.check_path(call)
        name = check_name(call.param("name"))
        if name in SYSTEM:
            raise Refusal(403, "forbidden", "this stream belongs to the server")
        if streams.find(name) is None and streams.was_deleted(name):
            return _deleted(None)
        return context.after(streams.delete(streams.get(name), call.access), _deleted)


def _deleted(_: object) -> Reply:
    return Reply(b"", 204, headers=(NO_STORE,))
