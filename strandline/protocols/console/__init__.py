"""The console: a page that shows what is going on, and the API that it asks."""
