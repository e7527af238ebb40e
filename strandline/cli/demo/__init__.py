"""The demonstration: a week of a shop, told in chapters, on a server of its own."""
