"""Wait requests: the keys to wait on, and whether the client can be answered at once.

This module ensures that no change is missed. It adds the keys that stand for coarser changes to those that were
requested, and detects changes since the cursor that the journal may not have recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.delivery.invalidation.keys import ANY, COARSENED, ID_MASK, table_key
from strandline.delivery.invalidation.processor import Mode, Processor
from strandline.delivery.invalidation.templates import Template, Templates
from strandline.delivery.invalidation.touch_journal import TouchJournal
from strandline.delivery.invalidation.waiters import Kind, TouchAnswer, Wait, Waiters


class WaitRequest:
    """A request to wait. ``keys`` are full keys, for exact waits. ``templates`` are those that the client names, or
    None."""

    __slots__ = ("coarse", "ids", "keys", "templates", "timeout_ms")

    def __init__(
        self,
        ids: frozenset[int],
        timeout_ms: int,
        *,
        coarse: bool = False,
        keys: frozenset[int] | None = None,
        templates: Sequence[int] | None = None,
    ) -> None:
        self.ids = ids
        self.timeout_ms = timeout_ms
        self.coarse = coarse
        self.keys = keys
        self.templates = templates or None


class Asking:
    """Evaluates the wait requests of one log."""

    def __init__(self, journal: TouchJournal, templates: Templates, waiters: Waiters, processor: Processor) -> None:
        self._journal = journal
        self._templates = templates
        self._waiters = waiters
        self._processor = processor

    def kind_of(self, request: WaitRequest) -> Kind:
        """The kind of keys that a request waits on."""
        if request.coarse:
            return "tableKey"
        if request.templates:
            if self._processor.mode is Mode.RESTRICTED:
                return "templateKey"
            if self._processor.mode is Mode.COARSE_ONLY:
                return "tableKey"
        return "fineKey"

    def wait_for(self, request: WaitRequest, tell: Callable[[TouchAnswer], None], now: float) -> Wait:
        """Create a wait that misses no requested change, whatever the level of detail while it lasts."""
        kind = self.kind_of(request)
        fine = kind != "tableKey"
        further: set[int] = set()
        active: list[int] = []
        for identifier in request.templates or ():
            template = self._templates.see(identifier, now)
            if template is not None:
                active.append(identifier)
            further.add(self._stand_in(identifier, template if fine else None))
        if fine and request.templates is None:
            further.add(COARSENED)
        return Wait(
            ids=request.ids,
            further=frozenset(key & ID_MASK for key in further),
            exact=None if request.keys is None else request.keys | further,
            kind=kind,
            fine=fine,
            templates=None if request.templates is None else tuple(active),
            tell=tell,
        )

    def _stand_in(self, identifier: int, template: Template | None) -> int:
        """The key that is touched when rows of the template are not recorded one by one."""
        if template is not None:
            return template.key
        entity = self._templates.entity_of(identifier)
        return ANY if entity is None else table_key(entity)

    def touched_after(self, wait: Wait, generation: int) -> bool:
        """Whether a key of the wait was, or may have been, touched in a later generation."""
        journal = self._journal
        if generation >= journal.generation:
            return False
        if wait.exact is not None:
            touched = journal.touched_exactly_after(wait.exact, generation)
        else:
            touched = journal.touched_after(wait.ids, generation) or journal.touched_after(wait.further, generation)
        if touched or not wait.fine:
            return touched
        return self._skipped_after(wait, generation, journal.generation) or self._changed_too_early(wait, generation)

    def missing_from_bucket(self, wait: Wait, generation: int) -> bool:
        """Whether the open bucket may lack a touch that concerns the wait."""
        journal = self._journal
        if not wait.fine:
            return False
        if self._skipped_after(wait, generation, journal.next_generation):
            return True
        return any(
            template.active_from > journal.generation and table_key(template.entity) in journal.pending
            for template in self._named(wait)
        )

    def _skipped_after(self, wait: Wait, generation: int, until: int) -> bool:
        """Whether row keys were skipped, up to a generation, because no client had shown interest in them."""
        if wait.templates is None:
            skipped = self._processor.skipped
        else:
            skipped = max((template.skipped for template in self._named(wait)), default=-1)
        return generation < skipped <= until and not self._waiters.lasts_since(wait, generation)

    def _changed_too_early(self, wait: Wait, generation: int) -> bool:
        """Whether there were changes before one of the templates was active."""
        return any(
            template.active_from > generation
            and self._journal.touched_after([table_key(template.entity) & ID_MASK], generation)
            for template in self._named(wait)
        )

    def _named(self, wait: Wait) -> list[Template]:
        found = (self._templates.get(identifier) for identifier in wait.templates or ())
        return [template for template in found if template is not None]
