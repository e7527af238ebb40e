"""What this face measures of its own work."""

from __future__ import annotations

from strandline.faces.meters import Meter


class Meters:
    """One meter per series; times are microseconds."""

    def __init__(self) -> None:
        #: Of every append that was made: its records, the bytes of its body, and how long it waited for the disk. The
        #: latter also of closing a stream.
        self.append_records = Meter()
        self.append_bytes = Meter()
        self.append_wait = Meter()
        #: Of every page that was sent, empty ones as well: its records, and the bytes of its body.
        self.read_records = Meter()
        self.read_bytes = Meter()
        #: How long it took to fetch a page that was not at hand, or had to be filtered.
        self.read_fetch = Meter()
        #: The bytes of every event, or of several that went out together.
        self.event_bytes = Meter()

    @property
    def by_name(self) -> dict[str, tuple[str, Meter]]:
        """Unit and meter by the name of the series."""
        return {
            "append.records": ("records", self.append_records),
            "append.bytes": ("bytes", self.append_bytes),
            "append.wait": ("us", self.append_wait),
            "read.records": ("records", self.read_records),
            "read.bytes": ("bytes", self.read_bytes),
            "read.fetch": ("us", self.read_fetch),
            "events.bytes": ("bytes", self.event_bytes),
        }

    def fold(self) -> None:
        for _, meter in self.by_name.values():
            meter.fold()
