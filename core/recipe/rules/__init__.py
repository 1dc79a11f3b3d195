"""Combinations of keys that are refused, by subject. A rule yields one problem per culprit."""
