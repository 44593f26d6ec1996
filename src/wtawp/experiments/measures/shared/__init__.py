"""What measures share: the interface, the registry, checks of options, and flips found by attacks."""
