"""The adapter that runs a coding agent, or any program, as a child process."""
