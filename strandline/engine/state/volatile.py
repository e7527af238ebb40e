"""Records that are in memory only, because their log was ephemeral when they were written.

A log can become ephemeral and cease to be so. Its older records are durable all the while, and what happens to them
is journaled; the volatile ones are written down when the log takes another class.
"""

from __future__ import annotations

from strandline.engine.journal.bodies import Select, pack
from strandline.engine.journal.frame import Encoded, FrameType, encode, encode_append
from strandline.engine.state.checkpoints import BookState, state_frame
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Overlay


def begin_volatile(book: Logbook) -> None:
    """What is assigned from here on is in memory only."""
    if not book.volatile_from:
        book.volatile_from = book.assigned + 1
        if book.tail is not None:
            book.tail.join_no_further()


def has_durable(book: Logbook) -> bool:
    """Whether there are records that a restart brings back."""
    return book.config.durability != "ephemeral" or book.earliest < (book.volatile_from or book.assigned + 1)


def frames_of_volatile(book: Logbook, now: int) -> list[Encoded]:
    """What a log must write down when it ceases to be ephemeral: the records it has, and its state."""
    tail, epoch = book.tail, book.epoch
    frames: list[Encoded] = []
    if book.volatile_from and tail is not None:
        first, last, taken, overlay = book.volatile_from, tail.last, book.reserved, tail.overlay or Overlay()
        frames += [
            encode_append(epoch, block.cut(low - block.first, high - block.first + 1), now, taken, None)
            for block in tail.uniform_blocks(first)
            for low, high in overlay.dead.gaps(block.first, block.last)
        ]
        hidden = [seq for low, high in overlay.hidden.overlap(first, last) for seq in range(low, high + 1)]
        if hidden:
            frames.append(encode(FrameType.HIDE, epoch, 0, now, pack(Select(last, seqs=hidden)), reserved=taken))
        amended = [(seq, data) for seq, data in overlay.amended.items() if seq >= first]
        frames += [encode(FrameType.AMEND, epoch, seq, now, data) for seq, data in amended]
    return [*frames, state_frame(epoch, BookState.of(book), now)]
