"""A copy of the journal in an object store, from which another machine can continue."""
