"""Run directories: one run, whole, to be copied, read and shared without store, torch or server."""
