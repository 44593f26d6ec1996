"""Numbers from records: cells and pairs of a plan, comparisons with their uncertainty, and claims of the paper."""
