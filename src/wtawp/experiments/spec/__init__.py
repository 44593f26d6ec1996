"""Room spec."""
