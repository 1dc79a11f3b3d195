"""The commands of opd: what each takes, calls and prints."""
