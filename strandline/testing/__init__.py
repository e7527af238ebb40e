"""Servers for tests. ``strandline.testing.plugin`` has fixtures for pytest::

# conftest.py
pytest_plugins = ["strandline.testing.plugin"]
"""

from __future__ import annotations

from strandline.testing.local_server import LocalServer, ServerFailed

__all__ = ["LocalServer", "ServerFailed"]
