"""The rules that hold for every log of a server, in all protocols."""
