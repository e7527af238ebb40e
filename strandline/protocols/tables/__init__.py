"""Tables over HTTP: JSON requests and answers, and rows as they come as server-sent events."""
