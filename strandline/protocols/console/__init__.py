"""The console: a web page that shows the state of the server, and its API."""
