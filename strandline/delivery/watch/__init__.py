"""Reading along: who watches which log, how far everybody has come, and pages that are made once for all."""

from strandline.delivery.watch.alarms import Alarm, Alarms
from strandline.delivery.watch.feed import Feed, Piece, Place, Reader, Subject, View
from strandline.delivery.watch.feeds import Feeds

__all__ = ["Alarm", "Alarms", "Feed", "Feeds", "Piece", "Place", "Reader", "Subject", "View"]
