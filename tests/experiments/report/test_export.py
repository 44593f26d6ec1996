import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.experiments.report.export import export_data
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Claim, Plan, Record

MakeRecords = Callable[..., list[Record]]


def test_the_numbers_go_through_json(small_plan: Plan, make_records: MakeRecords) -> None:
    claimed = replace(small_plan, claims=(Claim("Rows agree.", "rows_agree_within_3"),))
    records = make_records(claimed, lambda cell, split, _: 80.0 + split + (1.0 + split if cell.setting.awp else 0.0))
    data = json.loads(json.dumps(export_data(summarise(claimed, records[1:]))))
    assert list(data) == ["plan", "device", "cells", "pairs", "drops", "claims"]
    first, second, *_ = data["cells"]
    assert (first["row"], first["column"], first["runs"], first["wanted"]) == ("GCN", "cora", 7, 8)
    assert (first["verdict"], second["printed"], second["mean"]) == ("incomplete", [85.0, 0.5], pytest.approx(84.0))
    assert data["pairs"][0]["gain"]["mean"] == pytest.approx(2.5)
    assert data["claims"] == [{"text": "Rows agree.", "verdict": "incomplete", "sentence": "1 of 32 runs are missing."}]
