"""Delivery: who waits for what, and who gets what."""
