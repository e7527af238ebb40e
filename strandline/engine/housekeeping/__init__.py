"""What goes on in the background: the journal becomes segments, segments are merged and moved."""
