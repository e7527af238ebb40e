"""Check, repair and print the files of a data directory."""
