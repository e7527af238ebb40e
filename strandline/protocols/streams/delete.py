"""DELETE: taking a stream away."""

from __future__ import annotations

from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.streams import check_name
from strandline.service.admission import Replying
from strandline.service.http import NO_STORE, Call, Reply


class Deleting:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def delete(self, call: Call) -> Replying:
        """DELETE /v1/stream/{name}. Repeating it is no error; a stream that never was is."""
        context, streams = self._context, self._context.streams
        context.check_path(call)
        name = check_name(call.param("name"))
        if streams.find(name) is None and streams.was_deleted(name):
            return _deleted(None)
        stream = context.stream_to_change(call)
        return context.admission.after(streams.delete(stream, call.access), _deleted)


def _deleted(_: object) -> Reply:
    return Reply(b"", 204, headers=(NO_STORE,))
