"""Audit: how accurate, how robust, how certain and how flat a model is, with and without WT-AWP, on one page.

An audit is a set of plans that are run into the store, and a report of their records. This room may import every other
room of `experiments` but `demo` and `tuning`.
"""
