"""Signing: who wrote an element, who asks, what they may, and who can read. Bytes in, bytes out; nothing is kept."""
