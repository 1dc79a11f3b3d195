"""What is remembered: one file is one Prefect task and one kind of artifact."""
