"""Live invalidation: notifies clients that cache the result of a query that it may have changed."""
