"""Finding single records of a log by their seqs, many at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.engine import Log, Record

#: Records that lie between two wanted ones are read along when they are at most this many: that is cheaper than
#: another read.
READ_ALONG = 16
#: Records per read.
READ_RECORDS = 1024


def records_at(log: Log, seqs: Sequence[int]) -> Iterator[Record]:
    """Those of the records with these ascending seqs that are there, ascending."""
    start = 0
    while start < len(seqs):
        end = start + 1
        while end < len(seqs) and seqs[end] - seqs[end - 1] <= READ_ALONG and end - start < READ_RECORDS:
            end += 1
        yield from _between(log, seqs[start:end])
        start = end


def _between(log: Log, seqs: Sequence[int]) -> Iterator[Record]:
    wanted, last = set(seqs), seqs[-1]
    after = seqs[0] - 1
    while after < last:
        page = log.read(after, min(last - after, READ_RECORDS))
        for record in page:
            if record.seq in wanted:
                yield record
        if page.caught_up:
            return
        after = page.next_after
