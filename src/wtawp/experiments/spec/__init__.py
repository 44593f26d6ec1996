"""Plans as data: settings, runs with content keys, plans, and the records of what runs measured. Nothing is trained."""

from wtawp.experiments.spec.measure import MeasureRequest, Option, is_option, options_from_json
from wtawp.experiments.spec.plan import LAST, Cell, Claim, Contender, Plan, PlanError, Scale
from wtawp.experiments.spec.record import BOUND_TERMS, Record, RecordError
from wtawp.experiments.spec.run import FORMAT, MAX_INITS, MAX_TOGETHER, Run, RunId, chunks, key_of
from wtawp.experiments.spec.setting import ITSELF, SURROGATE, Keep, Setting
from wtawp.experiments.spec.sources import add_cwd_to_sys_path, source_digest
from wtawp.experiments.spec.split_rule import SplitKind, SplitRule

__all__ = [
    "BOUND_TERMS", "FORMAT", "ITSELF", "LAST", "MAX_INITS", "MAX_TOGETHER", "SURROGATE",
    "Cell", "Claim", "Contender", "Keep", "MeasureRequest", "Option", "Plan", "PlanError", "Record", "RecordError",
    "Run", "RunId", "Scale", "Setting", "SplitKind", "SplitRule", "add_cwd_to_sys_path", "chunks", "is_option",
    "key_of", "options_from_json", "source_digest",
]  # fmt: skip
