"""Room demo."""
