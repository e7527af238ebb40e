"""The tables protocol: JSON requests and answers, and live rows as server-sent events."""
