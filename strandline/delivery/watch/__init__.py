"""Watch streams: the live readers of a log, their positions, and pages that are rendered once for all readers."""

from strandline.delivery.watch.alarms import Alarm, Alarms
from strandline.delivery.watch.feed import (
    Feed,
    FeedPage,
    FeedPosition,
    FeedReader,
    Feeds,
    FeedView,
    PlainSubject,
    Subject,
)

__all__ = [
    "Alarm",
    "Alarms",
    "Feed",
    "FeedPage",
    "FeedPosition",
    "FeedReader",
    "FeedView",
    "Feeds",
    "PlainSubject",
    "Subject",
]
