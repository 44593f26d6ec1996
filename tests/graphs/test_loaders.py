import subprocess
import sys

import torch
from sklearn.datasets import load_wine

from wtawp.graphs import toy
from wtawp.graphs.loaders import karate, toy_moons, wine


def test_points_are_standardised_and_joined_to_five_neighbours_or_more() -> None:
    data = wine()
    torch.testing.assert_close(data.x.mean(0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(data.x.std(0, correction=0), torch.ones(13))
    assert data.y.tolist() == load_wine().target.tolist()
    assert int(torch.bincount(data.edge_index[0]).min()) >= 5


def test_the_karate_club_has_identity_features() -> None:
    assert torch.equal(karate().x, torch.eye(34))


def test_toys_are_those_of_the_generator() -> None:
    assert torch.equal(toy_moons(seed=3).x, toy("moons", seed=3).x)


def test_scikit_learn_is_imported_only_for_the_data_sets_that_need_it() -> None:
    code = "import sys, wtawp; wtawp.load('{}'); print('sklearn' in sys.modules)"
    printed = [
        subprocess.run([sys.executable, "-c", code.format(name)], capture_output=True, text=True, check=True).stdout
        for name in ("karate", "citation", "wine")
    ]
    assert printed == ["False\n", "False\n", "True\n"]
