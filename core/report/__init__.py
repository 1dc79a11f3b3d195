"""One offline page per run."""
