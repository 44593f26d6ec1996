"""Looking at one model of one's own, or at a pair trained here: what the commands for flatness measure and draw."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import nn
from torch_geometric.data import Data

from wtawp import analysis
from wtawp.analysis.landscape import Scale
from wtawp.analysis.smoothness import Definition
from wtawp.base import AnalysisError
from wtawp.experiments.drawing import drawing, method_look, use_log_scale
from wtawp.experiments.execute import model_of, train_model
from wtawp.experiments.flat_figures import draw_bound, draw_lines, finish_bound, unit_of
from wtawp.experiments.plan import Run
from wtawp.experiments.tables import Entry, Table
from wtawp.graphs import Split, is_collection

RADII = ("layer", "adaptive", "global")


@dataclass(frozen=True)
class Looked:
    """Models by the names they have in tables, with their graph and split."""

    models: dict[str, nn.Module]
    data: Data
    split: Split

    def losses(self, *, bounded: bool = False) -> dict[str, analysis.LossOn]:
        """Of each model, on the training nodes."""
        return {n: analysis.LossOn(m, self.data, self.split.train, bounded=bounded) for n, m in self.models.items()}


@dataclass(frozen=True)
class Look:
    """What was seen: for people, for machines, and as a drawing that `draw(png)` makes."""

    table: Table
    content: dict[str, Any]
    draw: Callable[[Path | None], str]

    def to_json(self) -> str:
        """The content; JSON knows no infinity, so that losses that are not finite are null."""
        return json.dumps(_finite(self.content), allow_nan=False)

    def write(self, folder: Path, name: str) -> list[Path]:
        """The figure as SVG and PNG, and the numbers as JSON; says where."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.{kind}" for kind in ("svg", "png", "json")]
        paths[0].write_text(self.draw(paths[1]), encoding="utf-8")
        paths[2].write_text(self.to_json(), encoding="utf-8")
        return paths


def look_at(
    runs: dict[str, Run],
    *,
    checkpoint: Path | None = None,
    device: str = "cpu",
    progress: Callable[[float, str], None] | None = None,
) -> Looked:
    """Train each run, or, with a `checkpoint`, load the weights of the only one: a state dict, read without pickles."""
    models: dict[str, nn.Module] = {}
    for place, (name, run) in enumerate(runs.items()):

        def tell(share: float, what: str, place: int = place, name: str = name) -> None:
            if progress is not None:
                progress((place + share) / len(runs), f"{name}, {what}")

        if checkpoint is None:
            models[name], data, split = train_model(run, device=device, progress=tell)
        else:
            models[name], data, split = model_of(run, device=device)
            load_weights(models[name], checkpoint)
        models[name].eval()
    return Looked(models, data, split)


def load_weights(model: nn.Module, path: Path) -> None:
    """Into the model; refuses what is no state dict, and that of another architecture."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise AnalysisError(f"there is no checkpoint {path}") from None
    except Exception as error:  # whatever the reader stumbles over, the file is to blame
        raise AnalysisError(f"{path} is no state dict that can be read safely (weights_only=True): {error}") from error
    if not isinstance(found, dict) or not all(isinstance(t, torch.Tensor) for t in found.values()):
        raise AnalysisError(f"{path} must hold a state dict, torch.save(model.state_dict(), file), not {type(found)}")
    own = model.state_dict()
    named = [f"{n} is missing" for n in own if n not in found] + [f"{n} is unknown" for n in found if n not in own]
    named += [
        f"{n} is {list(found[n].shape)}, not {list(t.shape)}"
        for n, t in own.items()
        if n in found and found[n].shape != t.shape
    ]
    if named:
        more = f", and {len(named) - 4} more" if len(named) > 4 else ""
        raise AnalysisError(
            f"{path} is of another architecture than {type(model).__name__} on these data: "
            f"{'; '.join(named[:4])}{more}. Give the model and options it was trained with"
        )
    model.load_state_dict(found)


def landscape(
    looked: Looked, *, scale: Scale, reach: float, points: int, directions: int, plane: bool, adversarial: bool
) -> Look:
    """Along random lines, or along the adversarial direction, or (`plane`) on the plane of two random directions."""
    if points < 3 or not 0 < reach < math.inf:
        raise ValueError(f"points must be >= 3 and reach finite and > 0, got {points} and {reach}")
    distances = torch.linspace(-reach, reach, points).tolist()
    losses, found = looked.losses(), {}
    with torch.no_grad():
        here = {name: float(loss()) for name, loss in losses.items()}
    if broken := [name for name, loss in here.items() if not math.isfinite(loss)]:
        raise AnalysisError(f"the training loss of {broken[0]} is {here[broken[0]]}; there is no landscape around it")
    for name, model in looked.models.items():
        if plane:
            u, v = (analysis.random_direction(model, seed=0, number=i, scale=scale) for i in (0, 1))
            found[name] = analysis.losses_on_plane(model, losses[name], u, v, distances, distances)
        elif adversarial:
            u = analysis.adversarial_direction(model, losses[name])
            found[name] = analysis.loss_along(model, losses[name], u, distances)[None]
        else:
            found[name] = analysis.loss_along_random_directions(
                model, losses[name], distances, seed=0, num_directions=directions, scale=scale
            )
    rows = []
    for name, values in found.items():
        ends = _edge(values, plane) - here[name]
        rows.append((Entry(name), _number(here[name]), _number(float(ends.mean())), _number(float(ends.max())),
                     Entry(str(analysis.num_gaps(values)))))  # fmt: skip
    unit = "distance, in perturbations of radius 1" if adversarial and not plane else unit_of(scale)

    def draw(png: Path | None) -> str:
        if plane:
            return _planes(distances, {n: v.numpy() for n, v in found.items()}, here, unit, png)
        with drawing(1, 1, 6.0, 3.4, png=png) as ((ax,), out):
            for name, values in found.items():
                draw_lines(ax, distances, values.numpy() - here[name], name, [here[name]])
            ax.set(xlabel=unit, ylabel="rise of the training loss")
            ax.legend()
        return out[0]

    what = "on a plane" if plane else "along the adversarial direction" if adversarial else f"along {directions} lines"
    table = Table(
        f"The training loss {what}, up to {reach:g} ({unit}): at the model, and its rise at the ends, mean and most. "
        "Gaps: points where it is not finite.",
        ("model", "loss", "mean rise", "largest rise", "gaps"),
        tuple(rows),
    )
    content = {"distances": distances, "loss": here, "losses": {n: v.tolist() for n, v in found.items()}}
    return Look(table, content, draw)


def _edge(values: torch.Tensor, plane: bool) -> torch.Tensor:
    """Where the distance is largest: of a plane, its four sides."""
    if not plane:
        return values[:, [0, -1]].flatten()
    return torch.cat([values[0], values[-1], values[1:-1, 0], values[1:-1, -1]])


def _planes(
    distances: Sequence[float], found: dict[str, np.ndarray], here: dict[str, float], unit: str, png: Path | None
) -> str:
    """A map with contours and a surface for each model, all in one scale of colours."""
    rises = {name: np.where(np.isfinite(v), v - here[name], np.nan) for name, v in found.items()}
    top = max(float(np.nanmax(rise)) for rise in rises.values())
    low = min(float(np.nanmin(rise)) for rise in rises.values())
    levels = MaxNLocator(12).tick_values(low, top)
    look: dict[str, Any] = {"cmap": "viridis", "vmin": levels[0], "vmax": levels[-1]}
    first, second = np.meshgrid(distances, distances, indexing="ij")
    with drawing(2, len(rises), 4.3 * len(rises) + 0.6, 7.2, png=png) as (axes, out):
        figure = axes[0].get_figure(root=True)
        assert figure is not None
        for i, (ax, (name, rise)) in enumerate(zip(axes, rises.items(), strict=False)):
            shown = ax.contourf(first, second, rise, levels=levels, **look)
            ax.contour(first, second, rise, levels=levels[1::2], colors="white", linewidths=0.5)
            ax.plot([0], [0], "+", color="white")
            gaps = int((~np.isfinite(rise)).sum())
            ax.set_title(f"{name}, loss {here[name]:.3f}" + (f", {gaps} gaps" if gaps else ""))
            ax.set(xlabel=f"first direction\n{unit}", ylabel="second direction", aspect="equal")
            axes[len(rises) + i].remove()
            solid: Any = figure.add_subplot(2, len(rises), len(rises) + i + 1, projection="3d")
            solid.plot_surface(first, second, rise, rcount=26, ccount=26, **look)
            solid.set(xlabel="first direction", ylabel="second direction", zlabel="rise of the loss")
            solid.set_zlim(levels[0], levels[-1])
        figure.colorbar(shown, ax=axes[: len(rises)], label="rise of the training loss")
    return out[0]


def smoothness(looked: Looked, *, noise: float, samples: int) -> Look:
    """Mean gradient norms by A and X in both definitions; what a model does not allow is told in its place."""
    found: dict[str, dict[str, list[float] | str]] = {}
    for matrix, wrt in (("A", "adjacency"), ("X", "features")):
        for definition in ("paper", "released"):
            found[f"{matrix}, {definition}"] = {
                name: _norms(model, looked, wrt, definition, noise, samples) for name, model in looked.models.items()
            }
    rows = []
    for what, by_model in found.items():
        cells = [
            Entry("not measured")
            if isinstance(n, str)
            else Entry(f"{np.mean(n):.4g} ± {np.std(n):.2g}", float(np.mean(n)))
            for n in by_model.values()
        ]
        rows.append((Entry(what), *cells))
    reasons = dict.fromkeys(n for by_model in found.values() for n in by_model.values() if isinstance(n, str))

    def draw(png: Path | None) -> str:
        with drawing(1, len(found), 2.4 * len(found), 2.8, png=png) as (axes, out):
            for ax, (what, by_model) in zip(axes, found.items(), strict=True):
                _bars(ax, {n: v for n, v in by_model.items() if not isinstance(v, str)})
                ax.set(title=what)
            axes[0].set_ylabel("norm of the loss gradient")
        return out[0]

    caption = f"Norm of the loss gradient at {samples} noisy inputs (noise {noise:g}), mean ± deviation over them."
    table = Table(" ".join([caption, *map(str, reasons)]), ("by", *looked.models), tuple(rows))
    return Look(table, {"noise": noise, "samples": samples, "norms": found}, draw)


def _norms(
    model: nn.Module, looked: Looked, wrt: Any, definition: Definition, noise: float, samples: int
) -> list[float] | str:
    try:
        norms = analysis.input_gradient_norms(
            [model], looked.data, looked.split.train, wrt=wrt, seed=0, definition=definition, noise=noise,
            samples=samples,
        )  # fmt: skip
    except AnalysisError as error:
        return str(error)
    return [float(norm) for norm in norms[0]]


def _bars(ax: Axes, values: dict[str, list[float]]) -> None:
    for i, (name, norms) in enumerate(values.items()):
        ax.bar([i], [np.mean(norms)], yerr=[np.std(norms)], color=method_look(name)["color"], width=0.6)
    ax.set_xticks(range(len(values)), [name.replace("+", "\n+") for name in values])


def sharpness(looked: Looked, *, rho: float, points: int, steps: int, top: int) -> Look:
    """The rise of the loss inside balls of three kinds, up to `rho`, and the largest eigenvalues of the Hessian."""
    if points < 1 or not 0 < rho < math.inf:
        raise ValueError(f"points must be >= 1 and rho finite and > 0, got {points} and {rho}")
    rhos = [rho * (i + 1) / points for i in range(points)]
    rises: dict[str, dict[str, list[float]]] = {}
    losses = looked.losses()
    for radius in RADII:
        rises[radius] = {
            name: analysis.sharpness_over(model, losses[name], rhos, radius=radius, steps=steps)  # type: ignore[arg-type]
            for name, model in looked.models.items()
        }
    values = {name: analysis.top_eigenvalues(model, losses[name], k=top) for name, model in looked.models.items()}
    traces = {name: analysis.hessian_trace(model, losses[name], seed=0) for name, model in looked.models.items()}
    density = {name: analysis.spectral_density(m, losses[name], seed=0, probes=3) for name, m in looked.models.items()}
    rows = [
        (Entry(f"sharpness, {radius}, rho={rho:g}"), *(_number(rise[-1]) for rise in by_model.values()))
        for radius, by_model in rises.items()
    ]
    rows += [(Entry(f"eigenvalue {i + 1}"), *(_number(v[i]) for v in values.values())) for i in range(top)]
    rows.append((Entry("trace of the Hessian"),
                 *(Entry(f"{t.mean:.4g} ± {t.standard_error:.2g}", t.mean) for t in traces.values())))  # fmt: skip

    def draw(png: Path | None) -> str:
        with drawing(1, len(RADII) + 1, 3.3 * (len(RADII) + 1), 3.0, png=png) as (axes, out):
            for ax, (radius, by_model) in zip(axes, rises.items(), strict=False):
                for name, rise in by_model.items():
                    shown = [r if math.isfinite(r) else math.nan for r in rise]
                    ax.plot([0, *rhos], [0, *shown], marker="o", markersize=3, label=name, **method_look(name))
                ax.set(title=f"{radius} radius", xlabel="rho")
            axes[0].set_ylabel("rise of the training loss")
            axes[0].legend(fontsize=8)
            _densities(axes[-1], density)
        return out[0]

    caption = "The rise of the training loss inside balls of weights, found by climbing, and the Hessian of that loss."
    content = {"rhos": rhos, "rises": rises, "eigenvalues": values, "trace": {n: asdict(t) for n, t in traces.items()}}
    return Look(Table(caption, ("measure", *looked.models), tuple(rows)), content, draw)


def _densities(ax: Axes, density: dict[str, analysis.SpectralDensity]) -> None:
    ends = [float(d.nodes.min()) for d in density.values()], [float(d.nodes.max()) for d in density.values()]
    low, high = min(ends[0]), max(ends[1])
    width = max(high - low, 1e-6) / 80
    grid = np.linspace(low - 4 * width, high + 4 * width, 600)
    floor, highest = 1e-7, 1e-6  # under the floor there is less than one eigenvalue in any model looked at here
    for name, one in density.items():
        curve = one.at(grid, width)
        highest = max(highest, float(curve.max()))
        ax.plot(grid, np.maximum(curve, floor), linewidth=1.3, label=name, **method_look(name))
    use_log_scale(ax, "y")
    ax.set(title="spectrum of the Hessian", xlabel="eigenvalue", ylabel="density", ylim=(floor, 3 * highest))


def bound(looked: Looked, *, rhos: Sequence[float], delta: float, epsilon: float, constant: float) -> Look:
    """Theorem 1, or the graph-level bound, term by term at several radii, beside the true gap that it bounds."""
    kind = "graphs" if is_collection(looked.data) else "nodes"
    found = {
        name: analysis.bound_over_rho(
            model, looked.data, looked.split.train, rhos, delta=delta, epsilon=epsilon, constant=constant
        )
        for name, model in looked.models.items()
    }
    rows = [
        (Entry(name), _number(at.rho), *(_number(at.bound.terms()[term]) for term in
         ("loss", "tail", "complexity", "remainder", "total")), _number(at.bounded_gap), _number(at.gap),
         Entry("vacuous" if at.bound.is_vacuous else "says something"))
        for name, each in found.items() for at in each
    ]  # fmt: skip

    def draw(png: Path | None) -> str:
        with drawing(1, 1, 6.0, 3.4, png=png) as ((ax,), out):
            for name, each in found.items():
                totals = [at.bound.total for at in each]
                draw_bound(ax, name, [at.rho for at in each], totals, each[0].all_loss, each[0].train_loss)
            finish_bound(ax)
            ax.set_ylabel("1 - p(right class), mean")
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return out[0]

    theorem = f"Theorem 1 (epsilon_all = {epsilon:g})" if kind == "nodes" else "The graph-level bound"
    caption = (
        f"{theorem} for the loss 1 - p(right class), with probability {1 - delta:g}; the unnamed constant is "
        f"{constant:g}. The perturbed loss is found by climbing, so this is an estimate of the bound."
    )
    headers = (
        "model",
        "rho",
        "perturbed loss",
        "tail",
        "complexity",
        "remainder",
        "bound",
        "bound on the gap",
        "gap",
        "",
    )
    content = {
        name: [{**at.bound.terms(), "rho": at.rho, "total_rho": at.total_rho, "gap": at.gap,
                "bounded_gap": at.bounded_gap, "is_vacuous": at.bound.is_vacuous} for at in each]
        for name, each in found.items()
    }  # fmt: skip
    return Look(Table(caption, headers, tuple(rows)), {"delta": delta, "epsilon": epsilon, "bounds": content}, draw)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _number(value: float) -> Entry:
    return Entry(f"{value:.4g}", value)
