"""The faces: one package per protocol, each of which translates HTTP to the rooms behind it."""
