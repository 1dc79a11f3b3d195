"""Single-turn prompts from files: rows, token bounds, and the tasks that they become."""
