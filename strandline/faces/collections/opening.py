"""Admission as a server needs it: with the lists of what is revoked, and what a program has declared."""

from __future__ import annotations

from strandline.faces.collections.admission import Admission
from strandline.faces.collections.callers import Callers
from strandline.faces.collections.config import CollectionsConfig
from strandline.faces.collections.declaring import Declared
from strandline.faces.collections.revoking import RevocationFiles


def open_admission(config: CollectionsConfig, declared: Declared) -> Admission:
    """Raises BadRevocationFile."""
    settings = config.settings
    files = RevocationFiles(settings.revocations, declared.revocations)
    files.load()
    return Admission(Callers(settings, files), declared.roles, settings.role_resolver_timeout_ms)
