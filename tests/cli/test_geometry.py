import json
from pathlib import Path

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from wtawp.base import rng
from wtawp.cli import app
from wtawp.cli.geometry import InspectionOptions
from wtawp.cli.shared import stderr_console
from wtawp.cli.training_options import Training
from wtawp.models import GCN

RUN = CliRunner()
SHORT = ("wine", "--epochs", 2)
FEW = {
    "landscape": ("--points", 3),
    "smoothness": ("--samples", 1),
    "sharpness": ("--points", 1, "--steps", 1, "--top", 1),
    "bound": ("--at", 0.1),
}


def invoke(*arguments: object, code: int = 0) -> str:
    result: Result = RUN.invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join((result.stdout if "--json" in arguments else result.output).split())


@pytest.fixture
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object, **__: object) -> None:
        raise AssertionError("something is trained")

    monkeypatch.setattr("wtawp.experiments.inspection.models.train_model", train)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.pt"
    invoke("train", *SHORT, "--plain", "--init", 1, "--save", path)
    return path


@pytest.mark.parametrize(
    ("command", "options", "kind"),
    [
        ("landscape", ("--directions", 2, "--scale", "filter"), "lines"),
        ("landscape", ("--plane", "--scale", "unit"), "plane"),
        ("landscape", ("--line", "adversarial"), "adversarial"),
        ("smoothness", (), None),
        ("sharpness", (), None),
        ("bound", (), None),
    ],
)
def test_each_command_shows_a_table_and_writes_figure_and_numbers(
    command: str, options: tuple[object, ...], kind: str | None, tmp_path: Path
) -> None:
    shown = invoke(command, *SHORT, *FEW[command], *options, "--out", tmp_path)
    title = f"{command} ({kind}) of GCN on wine" if kind else f"{command} of GCN on wine"
    assert title in shown
    assert "GCN+WT-AWP" in shown
    name = f"{command}-{kind}-wine-GCN" if kind else f"{command}-wine-GCN"
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{name}.{end}" for end in ("json", "png", "svg")]
    content = json.loads(invoke(command, *SHORT, *FEW[command], *options, "--plain", "--json"))
    assert content["title"] == title
    assert list(content["sources"]) == ["GCN"]
    assert "GCN+WT-AWP" not in json.dumps(content)


def test_the_table_is_that_of_the_json() -> None:
    shown = invoke("sharpness", *SHORT, *FEW["sharpness"], "--global-radius", 0.25)
    content = json.loads(invoke("sharpness", *SHORT, *FEW["sharpness"], "--global-radius", 0.25, "--json"))
    rows = {row[0]["text"]: row[1]["order"] for row in content["table"]["rows"]}
    assert rows["sharpness, layer, rho=0.1"] == content["rises"]["layer"]["GCN"][-1]
    assert rows["sharpness, adaptive, rho=2"] == content["rises"]["adaptive"]["GCN"][-1]
    assert rows["sharpness, global, rho=0.25"] == content["rises"]["global"]["GCN"][-1]
    assert f"{rows['eigenvalue 1']:.4g}" in shown
    assert rows["eigenvalue 1"] == content["eigenvalues"]["GCN"][0]


def test_the_line_between_leads_to_wt_awp_or_to_another_file(weights: Path, tmp_path: Path) -> None:
    between = ("landscape", *SHORT, "--points", 3, "--line", "between")
    trained = json.loads(invoke(*between, "--json"))
    assert list(trained["loss"]) == ["GCN", "GCN+WT-AWP"]
    assert (trained["distances"][0], trained["distances"][-1]) == (-0.5, 1.5)
    to_file = json.loads(invoke(*between, "--other", weights, "--json", "--reach", 0.25, "--out", tmp_path))
    assert list(to_file["loss"]) == ["GCN", "weights.pt"]
    assert to_file["distances"] == [-0.25, 0.0, 0.5, 1.0, 1.25]
    assert to_file["loss"]["GCN"] == pytest.approx(trained["loss"]["GCN"])
    assert (tmp_path / "landscape-between-wine-GCN.svg").is_file()
    alone = [argument for argument in between if argument not in ("--epochs", 2)]
    itself = json.loads(invoke(*alone, "--checkpoint", weights, "--other", weights, "--json"))
    assert itself["weight_distance"] == 0
    assert itself["loss"]["GCN"] == pytest.approx(to_file["loss"]["weights.pt"], abs=1e-5)


@pytest.mark.usefixtures("nothing_is_trained")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("landscape", "wine", "--plane", "--line", "between"), "--plane is spanned by random directions"),
        (("landscape", "wine", "--plane", "--line", "adversarial"), "--plane is spanned by random directions"),
        (("landscape", "wine", "--other", "x.pt"), "--other is not for this landscape (lines) but for: between"),
        (("landscape", "wine", "--plane", "--directions", "3"), "--directions is not for this landscape (plane)"),
        (("landscape", "wine", "--line", "between", "--scale", "unit"), "--scale is not for this landscape (between)"),
        (("landscape", "wine", "--line", "between", "--plain"), "--other FILE"),
        (("landscape", "wine", "--line", "between", "--model", "RGCN"), "--other FILE"),
        (("landscape", "wine", "--line", "between", "--checkpoint", "x.pt"), "--other FILE"),
        (("landscape", "wine", "--reach", "0"), "'--reach': must be finite and > 0, got 0"),
        (("landscape", "wine", "--reach", "inf"), "'--reach': must be finite and > 0, got inf"),
        (("landscape", "wine", "--points", "2"), "'--points'"),
        (("smoothness", "wine", "--noise", "-1"), "'--noise': must be finite and >= 0, got -1"),
        (("sharpness", "wine", "--layer-radius", "-1"), "'--layer-radius': must be finite and > 0, got -1"),
        (("sharpness", "wine", "--adaptive-radius", "nan"), "'--adaptive-radius': must be finite"),
        (("sharpness", "wine", "--global-radius", "0"), "'--global-radius': must be finite"),
        (("sharpness", "wine", "--top", "99999"), "'--top': must be at most the number of weights, 1091, got 99999"),
        (("sharpness", "wine", "--lam", "2"), "lam must lie in"),
        (("sharpness", "wine", "--option", "hidden"), "'--option': an option is name=value"),
        (("sharpness", "wine", "--option", "hidden=0"), "hidden must be whole numbers >= 1"),
        (("bound", "wine", "--at", "nan"), "'--at': must be finite and > 0, got nan"),
        (("bound", "wine", "--at", "1", "--at", "-1"), "'--at': must be finite and > 0, got -1"),
        (("bound", "wine", "--delta", "1"), "'--delta': must be between 0 and 1, got 1"),
        (("bound", "wine", "--epsilon", "-1"), "'--epsilon': must be finite and >= 0, got -1"),
    ],
)
def test_bad_values_are_refused_by_name_before_anything_is_trained(arguments: tuple[str, ...], words: str) -> None:
    assert words in invoke(*arguments, code=2).replace("│ ", "")


@pytest.mark.usefixtures("nothing_is_trained")
@pytest.mark.parametrize("arguments", [("bound", "wine"), ("landscape", "wine", "--line", "adversarial")])
def test_weights_that_are_distributions_are_refused_in_words_that_help(arguments: tuple[str, ...]) -> None:
    output = invoke(*arguments, "--model", "RGCN", code=1)
    assert "weights of RGCN are distributions and cannot be perturbed" in output
    assert "the Hessian (`wtawp sharpness`)" in output
    assert "lam=0" not in output


def test_the_hessian_of_such_weights_is_measured_all_the_same() -> None:
    content = json.loads(invoke("sharpness", *SHORT, "--model", "RGCN", *FEW["sharpness"], "--json"))
    assert [row[0]["text"] for row in content["table"]["rows"]] == ["eigenvalue 1", "trace of the Hessian"]
    assert list(content["eigenvalues"]) == ["RGCN"]


def test_an_unknown_option_is_refused_and_a_known_one_changes_the_model(tmp_path: Path) -> None:
    words = "GCN has no option 'hiden'; did you mean hidden? It has hidden, dropout"
    assert words in invoke("bound", "wine", "--option", "hiden=8", code=2)
    output = invoke("bound", "wine", "--option", "dropout=2", code=1)
    assert "dropout must lie in [0, 1), got 2" in output, "the model says so itself, before it is trained"
    assert "must be a finite number" in invoke("bound", "wine", "--option", "dropout=nan", code=2)
    path = tmp_path / "narrow.pt"
    content = json.loads(invoke("bound", *SHORT, *FEW["bound"], "--plain", "--option", "hidden=8", "--json"))
    assert "hidden=(8,)" in content["sources"]["GCN"]
    from wtawp.base import rng
    from wtawp.models import GCN

    torch.save(GCN(13, 3, hidden=(8, 4), generator=rng("mine")).state_dict(), path)
    assert "another architecture" in invoke("bound", "wine", "--checkpoint", path, code=1)
    invoke("bound", "wine", *FEW["bound"], "--checkpoint", path, "--option", "hidden=8,4", "--option", "dropout=0.2")


@pytest.mark.usefixtures("nothing_is_trained")
def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    assert "there is no checkpoint" in invoke("bound", "wine", "--checkpoint", tmp_path / "no.pt", code=1)
    assert "there is no checkpoint" in invoke(
        "landscape", "wine", "--line", "between", "--other", tmp_path / "no.pt", code=1
    )


def test_a_checkpoint_of_ones_own_is_looked_at_alone(weights: Path) -> None:
    content = json.loads(invoke("sharpness", "wine", "--checkpoint", weights, *FEW["sharpness"], "--json"))
    assert content["sources"] == {"GCN": "GCN on wine with the weights of weights.pt; split 0"}
    assert "has another architecture than GAT" in invoke(
        "bound", "wine", "--model", "GAT", "--checkpoint", weights, code=1
    )


def test_what_was_written_is_shown_by_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path / "home"))  # where there is no store
    monkeypatch.setattr(stderr_console, "_width", 200)
    artifacts, page = tmp_path / "artifacts", tmp_path / "page.html"
    invoke("smoothness", *SHORT, *FEW["smoothness"], "--out", artifacts)
    invoke("landscape", *SHORT, *FEW["landscape"], "--plain", "--out", artifacts)
    invoke("report", "--html", page, "--artifacts", artifacts)
    text = page.read_text(encoding="utf-8")
    assert text.index("landscape (lines) of GCN on wine") < text.index("smoothness of GCN on wine")
    content = json.loads((artifacts / "landscape-lines-wine-GCN.json").read_text(encoding="utf-8"))
    assert f">{content['table']['rows'][0][1]['text']}<" in text
    assert text.count('src="data:image/svg+xml;base64,') == 2
    invoke("report", "--html", tmp_path / "again.html", "--looks", artifacts)  # the former name of the option
    assert text == (tmp_path / "again.html").read_text(encoding="utf-8")
    assert "add --html FILE" in invoke("report", "--artifacts", artifacts, code=2)
    assert "there is no artifact in" in invoke("report", "--html", page, "--artifacts", tmp_path, code=1)
    assert "there is no store" in invoke("report", "tab:natacc", "--html", page, "--artifacts", artifacts, code=1)


def test_what_is_not_read_is_refused_and_graphs_are_trained_as_in_the_paper(tmp_path: Path) -> None:
    model = GCN(13, 3, generator=rng("init"))
    torch.save(model.state_dict(), tmp_path / "GCN")  # a file named as the model is
    for option in (("--rho", 2), ("--epochs", 3), ("--plain",), ("--init", 1), ("--weight-decay", 0), ("--balance", 1)):
        output = invoke("sharpness", "wine", "--checkpoint", tmp_path / "GCN", *option, code=2)
        assert f"{option[0]} is about training" in output
    both = json.loads(invoke("landscape", "wine", "--line", "between", "--points", 3, "--checkpoint", tmp_path / "GCN",
                             "--other", tmp_path / "GCN", "--json"))  # fmt: skip
    assert list(both["loss"]) == ["GCN", "GCN, other"]
    wide = json.loads(invoke("landscape", "wine", "--scale", "unit", "--points", 3, "--directions", 1, "--checkpoint",
                             tmp_path / "GCN", "--json"))  # fmt: skip
    assert wide["distances"] == [-30.0, 0.0, 30.0]
    assert wide["options"] == {"line": "random", "plane": False, "scale": "unit", "points": 3, "directions": 1}
    inspection = InspectionOptions(training=Training(dataset="proteins", model="PooledGCN"))
    assert str(inspection.run(perturbed=True).setting.awp) == "rho=0.5, lam=0.3, layers='first'"
    assert inspection.run().setting.select_on == "accuracy"
    last = (
        InspectionOptions(training=Training(dataset="wine", select_on="last", layers="all")).run(perturbed=True).setting
    )
    assert (last.select_on, str(last.awp)) == ("last", "rho=1.0, lam=0.7, layers='all'")
    written = InspectionOptions(training=Training(dataset="proteins", model="PooledGCN", rho=2.0))
    assert str(written.run(perturbed=True).setting.awp) == "rho=2.0, lam=0.7, layers='first'"
