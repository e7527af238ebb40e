"""Benchmarks: each figure next to its floor on the same machine, or next to a peer. Run ``python -m bench``."""
