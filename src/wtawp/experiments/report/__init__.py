"""Reports: tables, figures and pages from plans and records. Nothing here trains a model."""
