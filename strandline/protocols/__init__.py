"""One package per protocol. Each translates HTTP requests into calls of the packages below it."""
