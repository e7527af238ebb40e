"""Strandline: an append-only event log server."""

__version__ = "0.1.0"
