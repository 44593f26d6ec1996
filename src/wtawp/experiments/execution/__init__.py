"""Room execution."""
