"""One optimizer step at a time, each from a committed state."""
