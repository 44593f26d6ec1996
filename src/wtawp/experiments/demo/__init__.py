"""The demonstration that `wtawp demo` trains and shows on one page."""
