"""Room measures."""
