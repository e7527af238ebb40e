"""What the engine does per second, beside what the machine could do at best: run ``python -m bench``."""
