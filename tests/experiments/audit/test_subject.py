from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.core import AwpConfig
from wtawp.experiments.audit.subject import dataset_name, make_subject, model_name
from wtawp.experiments.spec import Setting, SplitRule
from wtawp.graphs import load
from wtawp.models import GCN

BASE = Setting(dataset="wine", split=SplitRule())
AWP, AUTO = AwpConfig(rho=1.0, lam=0.7), AwpConfig(rho=1.0, lam="auto")


def test_rows_are_plain_training_wt_awp_and_wt_awp_auto_and_all_are_paired() -> None:
    subject = make_subject(BASE, AWP)
    assert dict(subject.methods) == {"GCN": None, "GCN+WT-AWP": AWP, "GCN+WT-AWP auto": AUTO}
    assert subject.pairs == (
        ("GCN", "GCN+WT-AWP"), ("GCN", "GCN+WT-AWP auto"), ("GCN+WT-AWP", "GCN+WT-AWP auto"),
    )  # fmt: skip
    assert [setting.awp for setting in subject.rows.values()] == [None, AWP, AUTO]
    assert subject.grid(5) == (5, 1)


def test_an_automatic_lam_of_the_user_is_one_row_and_a_model_without_perturbation_has_only_the_plain_one() -> None:
    assert len(make_subject(BASE, AUTO).methods) == 2
    assert make_subject(BASE, None).methods == (("GCN", None),)


def test_given_weights_are_one_row_on_one_split() -> None:
    subject = make_subject(replace(BASE, weights="0123"), AWP)
    assert subject.methods == (("GCN, given weights", None),)
    assert (subject.is_checkpoint, subject.most_splits, subject.pairs) == (True, 1, ())


def test_masks_of_one_split_pair_initialisations(tmp_path: Path) -> None:
    data = load("wine")
    part = torch.arange(len(data.y)) % 3
    masks = {name: part == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    dataset = dataset_name(Data(x=data.x, y=data.y, edge_index=data.edge_index, **masks), tmp_path)
    subject = make_subject(Setting(dataset=dataset, split=SplitRule(kind="masks")), AWP)
    assert (subject.has_one_split, subject.grid(4)) == (True, (1, 4))


def test_a_setting_without_a_split_is_refused() -> None:
    with pytest.raises(ValueError, match="pass split=SplitRule"):
        make_subject(Setting(dataset="wine"), AWP)


def test_the_key_names_setting_rows_and_options() -> None:
    keys = [
        make_subject(BASE, AWP).key(minutes=8.0),
        make_subject(BASE, AWP).key(minutes=9.0),
        make_subject(BASE, replace(AWP, rho=0.5)).key(minutes=8.0),
        make_subject(replace(BASE, epochs=7), AWP).key(minutes=8.0),
    ]
    assert len(set(keys)) == 4
    assert keys[0] == make_subject(BASE, AWP).key(minutes=8.0)


def test_classes_are_named_by_reference_and_those_of_functions_are_refused(user_module: str) -> None:
    class Local(nn.Module):
        pass

    assert model_name(f"{user_module}:Weighted") == f"{user_module}:Weighted"
    assert model_name(GCN) == "wtawp.models.gcn:GCN"
    with pytest.raises(ValueError, match="at the top of a module"):
        model_name(Local)


def test_a_graph_in_memory_becomes_a_file_that_loads_as_the_same_graph(tmp_path: Path) -> None:
    data = load("wine")
    name = dataset_name(data, tmp_path)
    assert dataset_name(data.clone(), tmp_path) == name
    again = load(name)
    assert torch.equal(again.x, data.x)
    assert set(map(tuple, again.edge_index.t().tolist())) == set(map(tuple, data.edge_index.t().tolist()))
    changed = data.clone()
    changed.x = changed.x + 1
    assert dataset_name(changed, tmp_path) != name
    assert dataset_name("cora", tmp_path) == "cora"


def test_the_name_of_an_audit_stays_when_options_are_added() -> None:
    assert make_subject(BASE, AwpConfig(rho=0.5, lam=0.5)).key() == "659daec500c8d660"
    other = make_subject(BASE, AwpConfig(rho=0.5, lam=0.5, direction="momentum"))
    assert other.key() != "659daec500c8d660"
