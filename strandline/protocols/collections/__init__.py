"""The collections protocol (Starfish): signed elements appended to documents."""
