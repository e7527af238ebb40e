"""What is true of every log of a server, whatever the protocol."""
