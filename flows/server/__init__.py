"""The Prefect server: its settings, its process, and the workers beside it."""
