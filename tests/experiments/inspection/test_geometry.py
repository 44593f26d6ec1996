import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.image import imread

from wtawp import analysis
from wtawp.base import AnalysisError, rng
from wtawp.experiments.inspection import geometry
from wtawp.experiments.inspection.models import InspectedModels
from wtawp.experiments.report.artifacts import Artifact
from wtawp.models import GAT, GCN, RGCN

RADII: Any = {"layer": 0.1, "adaptive": 2.0, "global": 0.5}


def rows_of(artifact: Artifact) -> dict[str, list[float | None]]:
    return {row[0].text: [entry.order for entry in row[1:]] for row in artifact.table.rows}


def figure_of(artifact: Artifact, folder: Path) -> Figure:
    """The figure that is written into files; the picture must not be blank, and the numbers must be the artifact's."""
    saved: list[Figure] = []
    save = Figure.savefig

    def recording(figure: Figure, *args: Any, **options: Any) -> None:
        saved.append(figure)
        save(figure, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", recording)
        svg, png, numbers = artifact.write(folder, "it")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert imread(png).std() > 0
    assert json.loads(numbers.read_text(encoding="utf-8")) == json.loads(artifact.to_json())
    return saved[0]


def heights_of(ax: Axes) -> dict[str, list[float]]:
    """The y values of each line that is drawn, by its label up to a comma."""
    return {str(line.get_label()).split(", loss")[0]: list(line.get_ydata()) for line in ax.lines}


def test_lines_are_those_of_the_analysis(inspected: InspectedModels, tmp_path: Path) -> None:
    artifact = geometry.lines(inspected, scale="layer", reach=0.5, points=5, directions=2)
    assert artifact.content["distances"] == [-0.5, -0.25, 0.0, 0.25, 0.5]
    heights = heights_of(figure_of(artifact, tmp_path).axes[0])
    for name, model in inspected.models.items():
        loss = inspected.losses()[name]
        truth = analysis.loss_along_random_directions(
            model, loss, [-0.5, 0.5], seed=0, num_directions=2, scale="layer"
        ) - float(loss().detach())
        rises = torch.tensor(artifact.content["losses"][name]) - float(loss().detach())
        assert heights[name] == pytest.approx(rises.mean(0).tolist(), abs=1e-6)
        row = rows_of(artifact)[name]
        assert row[:3] == pytest.approx([float(loss().detach()), float(truth.mean()), float(truth.max())], abs=1e-6)
        assert row[1] != 0


def test_the_adversarial_line_climbs_as_a_perturbation_does(inspected: InspectedModels, tmp_path: Path) -> None:
    artifact = geometry.adversarial_line(inspected, reach=0.5, points=3)
    heights = heights_of(figure_of(artifact, tmp_path).axes[0])
    assert "in perturbations of radius 1" in artifact.table.caption
    for name, model in inspected.models.items():
        loss = inspected.losses()[name]
        u = analysis.adversarial_direction(model, loss)
        truth = analysis.loss_along(model, loss, u, [-0.5, 0.5]) - float(loss().detach())
        assert [heights[name][0], heights[name][-1]] == pytest.approx(truth.tolist(), abs=1e-6)
        assert rows_of(artifact)[name][1:3] == pytest.approx([float(truth.mean()), float(truth.max())], abs=1e-6)


def test_the_rises_of_a_plane_are_those_of_its_four_sides(inspected: InspectedModels, tmp_path: Path) -> None:
    artifact = geometry.plane(inspected, scale="filter", reach=0.5, points=3)
    drawn = figure_of(artifact, tmp_path).axes[0].collections[0]
    name, model = next(iter(inspected.models.items()))
    assert isinstance(drawn, QuadContourSet)
    loss = inspected.losses()[name]
    u, v = (analysis.random_direction(model, seed=0, number=i, scale="filter") for i in (0, 1))
    around = torch.tensor([[s, t] for s in (-0.5, 0, 0.5) for t in (-0.5, 0, 0.5) if (s, t) != (0, 0)])
    truth = analysis.losses_at(model, loss, [u, v], around) - float(loss().detach())
    assert [drawn.zmin, drawn.zmax] == pytest.approx([min(0, float(truth.min())), float(truth.max())], abs=1e-6)
    assert rows_of(artifact)[name][1:3] == pytest.approx([float(truth.mean()), float(truth.max())], abs=1e-6)


def test_the_line_between_goes_from_one_solution_to_the_other(inspected: InspectedModels, tmp_path: Path) -> None:
    artifact = geometry.between(inspected, reach=0.5, points=6)  # of which neither 0 nor 1 is one
    line, *marks = figure_of(artifact, tmp_path).axes[0].lines
    first, second = inspected.models.values()
    ends = [float(loss().detach()) for loss in inspected.losses().values()]
    assert list(line.get_ydata()) == artifact.content["losses"]
    assert [mark.get_ydata()[0] for mark in marks] == pytest.approx(ends, abs=1e-5)
    distances = artifact.content["distances"]
    assert distances == pytest.approx([-0.5, -0.1, 0.0, 0.3, 0.7, 1.0, 1.1, 1.5])
    here, there, highest, where, barrier, apart, gaps = (entry.order for entry in artifact.table.rows[0])
    assert [here, there] == pytest.approx(ends, abs=1e-5)
    halfway = GCN(13, 3, hidden=(8,), generator=rng("any")).eval()
    losses = []
    for t in (0.0, 0.3, 0.7, 1.0):
        states = first.state_dict(), second.state_dict()
        halfway.load_state_dict({n: (1 - t) * w + t * states[1][n] for n, w in states[0].items()})
        losses.append(float(analysis.LossOn(halfway, inspected.data, inspected.split.train)().detach()))
    assert highest == pytest.approx(max(losses), abs=1e-5)
    assert where == pytest.approx((0.0, 0.3, 0.7, 1.0)[losses.index(max(losses))])
    assert barrier == pytest.approx(max(losses) - max(ends), abs=1e-5)
    squares = [(w - v).detach().square().sum() for w, v in zip(first.parameters(), second.parameters(), strict=True)]
    assert apart == pytest.approx(math.sqrt(float(sum(squares))), rel=1e-5)
    assert gaps is None
    assert "batch norm" not in artifact.table.caption


class Shifted(torch.nn.Module):
    """Its buffer is part of the function."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(13, 3)
        self.register_buffer("shift", torch.tensor([shift, 0.0, 0.0]))

    def forward(self, x: torch.Tensor, *_: object) -> torch.Tensor:
        shifted: torch.Tensor = self.lin(x) + self.get_buffer("shift")
        return shifted


def test_the_line_between_says_when_buffers_make_the_other_end_another_model(inspected: InspectedModels) -> None:
    pair = {f"by {shift:g}": Shifted(shift).eval() for shift in (0.0, 3.0)}
    artifact = geometry.between(InspectedModels(dict(pair), inspected.data, inspected.split), reach=0.5, points=3)
    assert "with its own buffers (batch norm) by 3 has" in artifact.table.caption


def test_smoothness_is_that_of_the_analysis(inspected: InspectedModels, tmp_path: Path) -> None:
    artifact = geometry.smoothness(inspected, noise=0.001, samples=2)
    panels = {ax.get_title(): [bar.get_height() for bar in ax.patches] for ax in figure_of(artifact, tmp_path).axes}
    for i, model in enumerate(inspected.models.values()):
        for matrix, wrt in (("A", "adjacency"), ("X", "features")):
            truth = analysis.input_gradient_norms(
                [model], inspected.data, inspected.split.train, wrt=wrt, seed=0, noise=0.001, samples=2
            )
            assert rows_of(artifact)[f"{matrix}, paper"][i] == pytest.approx(float(truth.mean()))
            assert panels[f"{matrix}, paper"][i] == pytest.approx(float(truth.mean()))


def test_what_a_model_does_not_allow_is_explained_in_its_caption(inspected: InspectedModels) -> None:
    gat = GAT(13, 3, generator=rng("init")).eval()
    artifact = geometry.smoothness(
        InspectedModels({"GAT": gat}, inspected.data, inspected.split), noise=0.001, samples=1
    )
    rows = {row[0].text: row[1].text for row in artifact.table.rows}
    assert rows["A, released"] == "not measured"
    assert "does not show where it uses A_hat" in artifact.table.caption


def test_sharpness_has_a_radius_for_each_ball_and_the_signed_eigenvalues(
    inspected: InspectedModels, tmp_path: Path
) -> None:
    artifact = geometry.sharpness(inspected, radii=RADII, points=2, steps=3, top=2)
    panels = {ax.get_title(): heights_of(ax) for ax in figure_of(artifact, tmp_path).axes}
    rows = rows_of(artifact)
    assert artifact.content["rhos"] == {"layer": [0.05, 0.1], "adaptive": [1.0, 2.0], "global": [0.25, 0.5]}
    for i, (name, model) in enumerate(inspected.models.items()):
        loss = inspected.losses()[name]
        for kind, rho in RADII.items():
            truth = analysis.sharpness_over(model, loss, [rho / 2, rho], radius=kind, steps=3)
            assert rows[f"sharpness, {kind}, rho={rho:g}"][i] == pytest.approx(truth[1])
            assert artifact.content["rises"][kind][name] == pytest.approx(truth)
            assert panels[f"{kind} radius"][name] == pytest.approx([0, *truth])
            assert truth[1] > 0
        eigenvalues = analysis.top_eigenvalues(model, loss, k=2)
        assert [rows["eigenvalue 1"][i], rows["eigenvalue 2"][i]] == pytest.approx(eigenvalues)
        trace = analysis.hessian_trace(model, loss, seed=0)
        assert rows["trace of the Hessian"][i] == pytest.approx(trace.mean)


def test_the_climb_is_as_long_as_the_analysis_has_it_unless_told(inspected: InspectedModels) -> None:
    artifact = geometry.sharpness(inspected, radii={"layer": 0.1}, points=1, top=1)
    truth = [analysis.sharpness(m, inspected.losses()[name], rho=0.1) for name, m in inspected.models.items()]
    assert rows_of(artifact)["sharpness, layer, rho=0.1"] == pytest.approx(truth)


def test_weights_that_are_distributions_have_a_hessian_and_random_lines_alone(
    inspected: InspectedModels, tmp_path: Path
) -> None:
    model = RGCN(13, 3, generator=rng("init")).eval()
    one = InspectedModels({"RGCN": model}, inspected.data, inspected.split)
    artifact = geometry.sharpness(one, radii=RADII, points=1, top=1)
    assert len(figure_of(artifact, tmp_path).axes) == 1  # the spectrum alone
    loss = one.losses()["RGCN"]
    assert rows_of(artifact)["eigenvalue 1"] == pytest.approx(analysis.top_eigenvalues(model, loss, k=1))
    assert list(rows_of(artifact)) == ["eigenvalue 1", "trace of the Hessian"]
    assert geometry.lines(one, scale="layer", reach=1.0, points=3, directions=1).table.rows
    for climbing in (
        lambda: geometry.adversarial_line(one, reach=1.0, points=3),
        lambda: geometry.bound(one, rhos=[0.1], delta=0.05, epsilon=1.0, constant=1.0),
    ):
        with pytest.raises(AnalysisError, match=r"weights of RGCN are distributions.*what works for it"):
            climbing()


def test_the_bound_is_that_of_the_analysis(inspected: InspectedModels, tmp_path: Path) -> None:
    artifact = geometry.bound(inspected, rhos=[0.1, 1.0], delta=0.05, epsilon=1.0, constant=1.0)
    heights = heights_of(figure_of(artifact, tmp_path).axes[0])
    headers = artifact.table.headers
    truth = [
        (name, at)
        for name, model in inspected.models.items()
        for at in analysis.bound_over_rho(model, inspected.data, inspected.split.train, [0.1, 1.0])
    ]
    for name in inspected.models:
        bounds = [at.bound.total for other, at in truth if other == name]
        assert heights[f"{name}, bound"] == pytest.approx(bounds)
    for row, (name, at) in zip(artifact.table.rows, truth, strict=True):
        assert row[0].text == name
        shown = {header: entry.order for header, entry in zip(headers, row, strict=True)}
        assert row[1].text == f"{at.rho:g}"
        terms = ("perturbed loss", "loss"), ("tail", "tail"), ("complexity", "complexity"), ("remainder", "remainder")
        for header, term in (*terms, ("bound", "total")):
            assert shown[header] == pytest.approx(at.bound.terms()[term])
        assert [shown["bound on the gap"], shown["gap"]] == pytest.approx([at.bounded_gap, at.generalisation_gap])
        assert row[-1].text == "vacuous"
        assert at.bound.is_vacuous


def test_losses_that_are_not_finite_are_gaps_and_null(inspected: InspectedModels, tmp_path: Path) -> None:
    model = GCN(13, 3, hidden=(8,), generator=rng("init")).eval()
    with torch.no_grad():
        for conv in model.convs:  # their product overflows once both are 20 times as long
            conv.weight.mul_(1e18)
    broken = InspectedModels({"GCN": model}, inspected.data, inspected.split)
    for artifact in (
        geometry.lines(broken, scale="layer", reach=20.0, points=5, directions=2),
        geometry.plane(broken, scale="layer", reach=20.0, points=5),
        geometry.plane(
            broken, scale="layer", reach=1e6, points=4
        ),  # finite nowhere: the model itself is no point of it
    ):
        gaps = int(artifact.table.rows[0][-1].text)
        lost = torch.tensor(artifact.content["losses"]["GCN"])
        assert gaps == int((~torch.isfinite(lost)).sum()) > 0
        assert "null" in artifact.to_json()
        artifact.write(tmp_path, "gaps")
    with torch.no_grad():
        model.convs[1].weight.fill_(float("inf"))
    with pytest.raises(AnalysisError, match="there is no landscape around it"):
        geometry.plane(broken, scale="layer", reach=1.0, points=3)


@pytest.mark.parametrize(("reach", "points"), [(0.0, 5), (1.0, 2), (math.nan, 5), (math.inf, 5)])
def test_bad_values_are_refused(inspected: InspectedModels, reach: float, points: int) -> None:
    with pytest.raises(ValueError, match="points must be >= 3 and reach"):
        geometry.lines(inspected, scale="layer", reach=reach, points=points, directions=1)
    with pytest.raises(ValueError, match="radii finite and > 0"):
        geometry.sharpness(inspected, radii={"layer": -1.0}, points=2, top=1)
