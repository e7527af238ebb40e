"""The streams of a server: all logs, as this protocol sees them."""

from __future__ import annotations

from typing import Any

from strandline.engine import Batch, Config, Log
from strandline.engine.commit import Commit
from strandline.engine.record import RESERVED_NAME, Durability, is_internal
from strandline.protocols.streams.errors import bad_request, gone, not_found
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.streams.stream import Stream, StreamTraits
from strandline.service.access import FULL_ACCESS, Access
from strandline.service.catalog import SYSTEM
from strandline.service.kernel import Kernel

#: How many streams are kept decoded. Others are decoded again when they are used.
MAX_KNOWN = 200_000
#: How many names of deleted streams are remembered, so that deleting one twice is not an error.
MAX_DELETED = 10_000
MAX_NAME_BYTES = 512


def check_name(name: str) -> str:
    """Raise unless a stream can have this name."""
    if not name:
        raise bad_request("the name of the stream is missing")
    if is_internal(name) and name not in SYSTEM:
        raise bad_request(RESERVED_NAME)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise bad_request("the name of the stream is not valid UTF-8") from None
    if size > MAX_NAME_BYTES or not name.isprintable():
        raise bad_request(f"the name of a stream must have at most {MAX_NAME_BYTES} bytes of printable text")
    return name


class Streams:
    """The catalog's logs as streams. ``now`` returns milliseconds. Only used on the event loop."""

    def __init__(self, kernel: Kernel, settings: StreamsSettings) -> None:
        self.kernel = kernel
        self.catalog = kernel.catalog
        self.engine = kernel.engine
        self._settings = settings
        self._now = kernel.hub.now
        self._known: dict[str, Stream] = {}
        self._deleted: dict[str, None] = {}
        self.catalog.created[self._created] = None

    # --- finding -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Stream | None:
        """The stream, hidden or not; None if it does not exist or has expired."""
        stream = self._known.get(name)
        if stream is None or stream.log.dropped:
            stream = self._look_up(name)
            if stream is None:
                return None
        lifetime = stream.lifetime
        if lifetime is not None and lifetime.expired(self._now()) and not self.catalog.expire(stream.log):
            return None
        return stream

    def _look_up(self, name: str) -> Stream | None:
        self._known.pop(name, None)
        log = self.engine.find(name) if not is_internal(name) or name in SYSTEM else None
        if log is None:
            return None
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        stream = self._known[name] = Stream(log, self.catalog.lifetime(log))
        return stream

    def get(self, name: str) -> Stream:
        """The stream; refuses if it does not exist or was deleted."""
        stream = self._known.get(name)
        if stream is None or stream.lifetime is not None or stream.log.dropped or stream.gone:
            stream = self.find(name)
            if stream is None:
                check_name(name)
                raise not_found()
            if stream.gone:
                self.catalog.sweep()
                if stream.log.dropped:
                    raise not_found()
                raise gone()
        return stream

    # --- creating --------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        traits: StreamTraits,
        *,
        source: tuple[Log, int] | None = None,
        notes: dict[str, object] | None = None,
        batch: Batch | None = None,
        durability: Durability | None = None,
        compact: bool = False,
        retain_until_in_lake: bool = False,
    ) -> tuple[Stream, Commit[Log]]:
        """Create a stream with its first records, in one step. It can be used at once, and is durable when the commit
        is done."""
        check_name(name)
        config = Config(
            durability=durability or self._settings.stream_durability,
            compact=compact,
            retain_until_in_lake=retain_until_in_lake,
            attributes=traits.attributes,
        )
        _, commit = self.catalog.create(name, config, source=source, notes=notes, batch=batch)
        stream = self._look_up(name)
        assert stream is not None
        return stream, commit

    def _created(self, log: Log) -> None:
        self._deleted.pop(log.name, None)

    # --- removing ------------------------------------------------------------------------------------------------

    def was_deleted(self, name: str) -> bool:
        """Whether a stream of this name was deleted recently."""
        return name in self._deleted

    def delete(self, stream: Stream, access: Access = FULL_ACCESS) -> Commit[Any]:
        """Remove the stream, or hide it while it has forks."""
        self.kernel.check_removable(stream.log, access)
        self._deleted[stream.name] = None
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]
        return self.catalog.remove(stream.log)
