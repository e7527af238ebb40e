"""Reading a log that is not JSON: in bulk, by the history; that something has come is told by the streams protocol."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.cli.readers import Part, Wanted, pages
from strandline.cli.records import Loss, Shown, of_batch
from strandline.client import Client
from strandline.history.info import LogInfo
from strandline.history.pieces import Where
from strandline.history.remote import ServerHistory

#: What is read before it is shown.
PIECE_RECORDS = 10_000


class BytesReader:
    def __init__(self, client: Client, url: str, key: str | None, log: str) -> None:
        self._client = client
        self._history = ServerHistory(url, key)
        self._log = log

    def head(self) -> int:
        return self._history.log(self._log).head

    def size(self) -> tuple[int, int | None]:
        return self._history.log(self._log).records, None

    def page(self, wanted: Wanted, limit: int) -> Part:
        info = self._history.log(self._log)
        records, after = self._read(info, wanted, limit)
        return Part(records, after, info.head, info.earliest, after >= info.head, _losses(info, wanted.after, after))

    def _read(self, info: LogInfo, wanted: Wanted, limit: int) -> tuple[list[Shown], int]:
        """The first records, and up to where that is."""
        records: list[Shown] = []
        where = Where(wanted.key, wanted.since)
        for piece in self._history.pieces(info, wanted.after, info.head, PIECE_RECORDS, where):
            for batch in piece.read():
                records += [one for one in of_batch(batch, False) if _begins(one.key, wanted.prefix)]
                if len(records) >= limit:
                    return records[:limit], records[limit - 1].seq
        return records, info.head

    def follow(self, wanted: Wanted | None) -> Iterator[Shown | Loss]:
        content_type = self._client.stream(self._log).head().content_type
        stream = self._client.stream(self._log, content_type=content_type)
        offset = stream.head().next_offset
        after = self.head() if wanted is None else wanted.after
        wanted = wanted or Wanted()
        with stream.tail(offset) as tail:
            while True:
                for part in pages(self, Wanted(after, wanted.key, wanted.prefix, wanted.since)):
                    yield from part.lost
                    yield from part.records
                    after = part.after
                if next(tail, None) is None:
                    return


def _losses(info: LogInfo, after: int, through: int) -> list[Loss]:
    """What readers would have got from behind ``after`` up to ``through``, had not a cap, time or damage taken it."""
    found = [Loss(after + 1, info.floor - 1, "cap or ttl")] if after + 1 < info.floor else []
    return found + [Loss(first, last, "lost") for first, last in info.gaps if first > after and first <= through]


def _begins(key: str | None, prefix: str | None) -> bool:
    return prefix is None or (key is not None and key.startswith(prefix))
