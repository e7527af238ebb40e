"""A follower: a read-only copy of the logs of another server, kept current from its journal."""
