"""The modules of this folder are imported by tests, or run by them as scripts; they hold none themselves."""

collect_ignore_glob = ["*.py"]
