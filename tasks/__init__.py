"""What is remembered: one file is one Prefect task and one kind of artifact.

A step imports what it computes with inside its body, so that planning and a run whose every step
is cached import neither torch nor plotly.
"""
