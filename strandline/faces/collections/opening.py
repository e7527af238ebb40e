"""Admission as a server needs it: with the lists of what is revoked, and what a program has declared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.faces.collections.admission import Admission
from strandline.faces.collections.callers import Callers
from strandline.faces.collections.config import CollectionsConfig
from strandline.faces.collections.declaring import Declared
from strandline.faces.collections.revoking import RevocationFiles


def open_admission(config: CollectionsConfig, declared: Declared, now: int) -> Admission:
    """Raises BadRevocationFile."""
    settings = config.settings
    files = RevocationFiles(settings.revocations, declared.revocations, _on_another_thread)
    files.load(now)
    return Admission(Callers(settings, files), declared.roles, settings.role_resolver_timeout_ms)


def _on_another_thread(act: Callable[[], None]) -> object:
    """Nothing on the loop waits for a disk."""
    return asyncio.get_running_loop().run_in_executor(None, act)
