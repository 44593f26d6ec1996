"""One module for each measure that has tables or figures of its own; its `REPORTER` says which."""
