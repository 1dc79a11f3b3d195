"""Worlds with tools: tasks, observations, verifiers and oracles."""
