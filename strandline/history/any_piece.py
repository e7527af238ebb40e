"""Every kind of piece there is, for those who send pieces to where they are read."""

from __future__ import annotations

from strandline.history.pieces import SegmentPiece
from strandline.history.remote import ServerPiece

AnyPiece = SegmentPiece | ServerPiece
