"""The service: the rules that hold for every log of a server, whatever the protocol."""
