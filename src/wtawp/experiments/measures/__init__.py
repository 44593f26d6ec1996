"""What is measured on trained models: one module a measure, found by its name.

Every module of this package (but not of `shared`) defines `MEASURE`, a `MeasureSpec`: the dataclass of its options,
the function that runs it, the kind of task it applies to, and what it refuses before anything is trained. Its tables
and figures are in `wtawp.experiments.report.measures`, in the module of the same name.
"""
