"""Room plans."""
