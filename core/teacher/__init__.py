"""What the teacher says about the states that the student visited."""
