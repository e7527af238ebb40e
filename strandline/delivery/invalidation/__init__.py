"""Live invalidation: notifies clients that cache the result of a query when the result may have changed."""
