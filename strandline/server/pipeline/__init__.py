"""Looking after the pipeline: when to start it, its process, and what to tell of it."""
