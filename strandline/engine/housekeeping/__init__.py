"""Background work on stored data: seal the journal into segments, merge segments, and move them to the cold tier."""
