import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wtawp.attacks.registry import register_attack, unregister_attack
from wtawp.attacks.spec import AttackSpec
from wtawp.core import AwpConfig
from wtawp.core.config import AUTO_RULE
from wtawp.experiments.spec import MeasureRequest, Run, Setting, SplitRule, key_of, source_digest, sources
from wtawp.experiments.spec.record_checks import wrong_setting_fields

PLAIN = Setting(dataset="karate", epochs=5)
PERTURBED = replace(PLAIN, awp=AwpConfig(rho=1.0, lam=0.7))


def test_a_setting_says_what_is_unusual_about_it() -> None:
    assert str(PERTURBED) == "GCN on karate, rho=1.0, lam=0.7, epochs=5"
    assert str(Setting(dataset="cora", model="MLP", options=(("hidden", (8,)),))) == "MLP on cora, plain, hidden=(8,)"


@pytest.mark.parametrize(
    ("model", "weight_decay", "select_on"),
    [
        ("GCN", 5e-4, "either"),
        ("RGCN", 0.0, "either"),
        ("PooledGCN", 5e-4, "accuracy"),
        ("my.module:Net", 5e-4, "either"),
    ],
)
def test_what_is_not_given_comes_from_the_registry(model: str, weight_decay: float, select_on: str) -> None:
    setting = Setting(dataset="karate", model=model)
    assert (setting.weight_decay, setting.select_on) == (weight_decay, select_on)
    assert Setting(dataset="karate", model=model, weight_decay=0.1).weight_decay == 0.1


def test_an_attack_that_unrolls_trainings_attacks_the_model_itself_unless_a_surrogate_is_named() -> None:
    options = (("attack", "meta-pgd"), ("budget", 4))
    setting = replace(PLAIN, model="GNNGuard", options=(("threshold", 0.2),), poison=MeasureRequest("poison", options))
    surrogate = setting.surrogate
    assert surrogate is not None
    assert (surrogate.model, surrogate.options) == ("GNNGuard", (("threshold", 0.2),))
    assert surrogate.measures == (MeasureRequest("poison", options),)
    named = replace(setting, poison=MeasureRequest("poison", (*options, ("surrogate", "GCN")))).surrogate
    assert named is not None
    assert named.model == "GCN"


@pytest.mark.parametrize("model", ["GCN", "LinearGCN"])
def test_a_model_that_has_options_as_a_surrogate_keeps_its_own_where_it_is_attacked_itself(model: str) -> None:
    options = (("hidden", (64,)), ("norm", "layer"), ("residual", True))
    attack = (("attack", "meta-pgd"), ("budget", 4))
    poisoned = replace(PERTURBED, model=model, options=options, poison=MeasureRequest("poison", attack))
    itself = poisoned.surrogate
    named = replace(poisoned, poison=MeasureRequest("poison", (*attack, ("surrogate", model)))).surrogate
    assert itself is not None
    assert named is not None
    assert (itself.model, itself.options, itself.awp, itself.select_on) == (model, options, None, named.select_on)
    assert named.options == (("hidden", (16,)),)


def test_the_surrogate_is_the_same_where_the_attack_is_not_registered() -> None:
    def flip_nothing(data: object, *, budget: float, train: object) -> None: ...

    register_attack(AttackSpec(name="unrolling", label="U", function=flip_nothing, unrolls_training=True))  # type: ignore[arg-type]
    try:
        attack = (("attack", "unrolling"), ("budget", 4))
        setting = replace(PLAIN, model="GAT", options=(("heads", 2),), poison=MeasureRequest("poison", attack))
        registered = setting.surrogate
    finally:
        unregister_attack("unrolling")
    read = Setting.from_content(json.loads(setting.content_json))
    assert read == setting
    assert read.surrogate == registered
    assert registered is not None
    assert (registered.model, registered.options) == ("GAT", (("heads", 2),))


def test_a_surrogate_that_is_the_users_model_has_the_hash_of_its_code() -> None:
    poison = MeasureRequest("poison", (("attack", "meta-pgd"), ("budget", 4)))
    content = replace(PLAIN, poison=poison).content | {"model": "my.module:Net", "code": "0123456789abcdef"}
    surrogate = Setting.from_content(content).surrogate
    assert surrogate is not None
    assert (surrogate.model, surrogate.code) == ("my.module:Net", "0123456789abcdef")


def test_a_poisoning_that_names_no_attack_can_be_read() -> None:
    surrogate = replace(PLAIN, poison=MeasureRequest("poison")).surrogate
    assert surrogate is not None
    assert surrogate.model == "GCN"


def test_the_surrogate_of_a_poisoned_setting_is_a_small_gcn_unless_another_is_named() -> None:
    options = (("attack", "dice"), ("budget", 0.05))
    poisoned = replace(PERTURBED, model="GAT", options=(("heads", 2),), poison=MeasureRequest("poison", options))
    surrogate = poisoned.surrogate
    assert surrogate is not None
    assert (surrogate.model, surrogate.options, surrogate.awp) == ("GCN", (("hidden", (16,)),), None)
    assert surrogate.select_on == "last"
    assert surrogate.measures == (MeasureRequest("poison", options),)
    other = replace(poisoned, poison=MeasureRequest("poison", (*options, ("surrogate", "RGCN")))).surrogate
    assert other is not None
    assert (other.model, other.options, other.weight_decay) == ("RGCN", (("heads", 2),), 0.0)
    assert other.measures == surrogate.measures
    assert PLAIN.surrogate is None


def test_the_linear_surrogate_is_selected_on_validation_and_the_number_of_draws_is_none_of_its_options() -> None:
    options = (("attack", "metattack"), ("budget", 0.05))
    poison = MeasureRequest("poison", (*options, ("surrogate", "LinearGCN"), ("draws", 3)))
    poisoned = replace(PLAIN, poison=poison)
    assert poisoned.poison_draws == 3
    assert PLAIN.poison_draws == 1
    surrogate = poisoned.surrogate
    assert surrogate is not None
    assert (surrogate.model, surrogate.options, surrogate.select_on) == ("LinearGCN", (("hidden", (16,)),), "either")
    assert surrogate.measures == (MeasureRequest("poison", options),)


@pytest.mark.parametrize("draws", [0, 1.5, True, "3"])
def test_a_wrong_number_of_draws_is_refused(draws: object) -> None:
    with pytest.raises(ValueError, match="draws of a poisoning must be a whole number >= 1, got"):
        replace(PLAIN, poison=MeasureRequest("poison", (("attack", "dice"), ("draws", draws))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dataset", "is_redrawn"), [("toy-linear", True), ("toy-moons", True), ("cora", False), ("x.npz", False)]
)
def test_the_toys_alone_are_drawn_anew_for_each_split(dataset: str, is_redrawn: bool) -> None:
    assert Setting(dataset=dataset).is_redrawn == is_redrawn


def test_data_of_a_user_s_function_are_known_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "graphs_of_a_user.py"
    digests = []
    for text in ("def mine(): ...", "def mine(): ...  # another", "def mine(): ..."):
        source.write_text(text, encoding="utf-8")
        digests.append(Setting(dataset="graphs_of_a_user:mine").digest)
    assert digests[0] == digests[2] != digests[1]
    assert digests[0] is not None
    assert Setting(dataset="cora").digest is None


def test_a_composed_data_set_is_known_by_the_content_of_all_its_files_and_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.npz", "b.npz", "s.json"):
        Path(name).write_text(name, encoding="utf-8")
    Path("loader_of_a_user.py").write_text("def mine(): ...", encoding="utf-8")
    names = ("cora@a.npz", "cora@b.npz", "cora@a.npz@s.json", "cora@s.json", "loader_of_a_user:mine@a.npz")
    digests = [Setting(dataset=name).digest for name in names]
    assert None not in digests
    assert len(set(digests)) == len(names)
    Path("s.json").write_text("another", encoding="utf-8")
    assert Setting(dataset="cora@s.json").digest != digests[3]
    assert Setting(dataset="cora@a.npz").digest == digests[0]
    assert Setting(dataset="cora@missing.npz").digest is None


def test_a_setting_from_content_has_its_hashes_and_looks_for_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    content = Setting(dataset="karate").content | {"model": "json.decoder:JSONDecoder"}
    assert Setting(dataset="karate", model="json.decoder:JSONDecoder").code is not None
    monkeypatch.setattr("wtawp.experiments.spec.sources.find_spec", lambda _: pytest.fail("it looked for a module"))
    monkeypatch.setattr("wtawp.experiments.spec.setting.source_digest", lambda _: pytest.fail("it read the source"))
    assert Setting.from_content(content).content == content
    with pytest.raises(ValueError, match="lr must be a finite number"):
        Setting.from_content(content | {"lr": 10**400})


def test_the_key_has_the_split_only_if_it_is_another_than_the_paper_s() -> None:
    old = Setting(dataset="cora").content_json
    assert Setting(dataset="cora", split=SplitRule()).content_json == old
    assert "split" not in old
    for rule in (SplitRule(kind="masks"), SplitRule(train=0.2), SplitRule(kind="k-fold", folds=5)):
        setting = Setting(dataset="cora", split=rule)
        assert setting.content_json != old
        assert Setting.from_content(json.loads(setting.content_json)) == setting
        assert f"split: {rule}" in str(setting)
        assert not wrong_setting_fields(json.loads(setting.content_json))
    assert wrong_setting_fields({**json.loads(old), "split": {"kind": "other"}}).keys() == {"split"}
    poisoned = Setting(
        dataset="cora", split=SplitRule(kind="masks"), poison=MeasureRequest("poison", (("attack", "dice"),))
    )
    assert poisoned.surrogate is not None
    assert poisoned.surrogate.split == SplitRule(kind="masks")


@pytest.mark.parametrize("average", [0.95, "swa"])
def test_an_average_survives_the_way_through_a_record_and_changes_the_key(average: Any) -> None:
    plain, averaged = Setting(dataset="cora"), Setting(dataset="cora", average=average)
    assert Setting.from_content(json.loads(averaged.content_json)) == averaged
    assert "average" not in plain.content
    assert f"average={average!r}" in str(averaged)
    with pytest.raises(ValueError, match="average belongs to full-batch training"):
        Setting(dataset="proteins", model="PooledGCN", average=average, batch_size=4)


def test_a_late_start_survives_the_way_through_a_record_and_an_early_one_leaves_the_key() -> None:
    late = replace(PERTURBED, awp=AwpConfig(rho=1.0, lam=0.7, start=2))
    assert Setting.from_content(json.loads(late.content_json)) == late
    assert "start" not in PERTURBED.content["awp"]
    with pytest.raises(ValueError, match="start=5 leaves no perturbed epoch of 5"):
        replace(PERTURBED, awp=AwpConfig(rho=1.0, lam=0.7, start=5))


def test_a_lam_that_follows_the_training_survives_the_way_through_a_record() -> None:
    setting = Setting(dataset="wine", awp=AwpConfig(rho=1, lam="auto"))
    assert setting.awp == AwpConfig(rho=1.0, lam="auto", balance="auto")
    content = json.loads(setting.content_json)
    assert Setting.from_content(content) == setting
    assert not wrong_setting_fields(content)
    assert content["awp"]["rule"] == AUTO_RULE
    del content["awp"]["rule"]  # a record of the first rule, whose results are not those of the present one
    assert not wrong_setting_fields(content)
    assert key_of(content, 0, 0) != Run(setting, 0, 0).key
    with pytest.raises(ValueError, match='lam="auto" followed rule 1 there'):
        Setting.from_content(content)


def test_names_in_another_case_are_the_same_setting_and_the_same_key() -> None:
    def setting(dataset: str, model: str, attack: str, surrogate: str) -> Setting:
        options = (("attack", attack), ("budget", 0.05))
        poison = MeasureRequest("poison", (*options, ("surrogate", surrogate)))
        return Setting(dataset=dataset, model=model, poison=poison, measures=(MeasureRequest("evasion", options),))

    registered = setting("karate", "SoftMedianGCN", "dice", "GAT")
    written = setting("Karate", "softmediangcn", "DICE", "gat")
    assert written == registered
    assert written.content_json == registered.content_json
    unknown = Setting(dataset="No-Such", measures=(MeasureRequest("evasion", (("attack", "No-Such"),)),))
    assert (unknown.dataset, unknown.measures[0].options) == ("No-Such", (("attack", "No-Such"),))


def test_the_inductive_protocol_survives_the_way_through_a_record_and_changes_the_key() -> None:
    plain, other = Setting(dataset="cora"), Setting(dataset="cora", inductive=True)
    assert Setting.from_content(json.loads(other.content_json)) == other
    assert "inductive" not in plain.content
    assert "inductive=True" in str(other)
    with pytest.raises(ValueError, match="true or false"):
        Setting(dataset="cora", inductive=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave out inductive"):
        Setting(dataset="proteins", model="PooledGCN", inductive=True, batch_size=4)


@pytest.mark.parametrize("options", [{"direction": "momentum"}, {"perturbed_gradient": "functional"}])
def test_a_substitute_for_a_gradient_survives_the_way_through_a_record_and_none_leaves_the_key(
    options: dict[str, Any],
) -> None:
    substituted = replace(PERTURBED, awp=AwpConfig(rho=1.0, lam=0.7, **options))
    content = json.loads(substituted.content_json)
    assert Setting.from_content(content) == substituted
    assert not wrong_setting_fields(content)
    assert {"direction", "perturbed_gradient"}.isdisjoint(PERTURBED.content["awp"])
    assert set(substituted.content["awp"]) - set(PERTURBED.content["awp"]) == set(options)
    option, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"^{option}='{value}' belongs to full-batch training; .* or {option}$"):
        Setting(dataset="proteins", model="PooledGCN", awp=substituted.awp, batch_size=4)


def test_settings_are_equal_where_their_keys_are() -> None:
    options = [Setting(dataset="wine", options=(("k", value),)) for value in (1, 1.0, True, 1)]
    assert len(set(options)) == len({Run(setting, 0, 0).key for setting in options}) == 3
    assert options[0] == options[3] != options[1]
    assert options[0] != "wine"
    numbers = [Setting(dataset="wine", lr=lr, weight_decay=0.0) for lr in (1, 1.0)]
    assert numbers[0] == numbers[1], "a learning rate is a number of one kind"


def test_the_code_of_the_user_s_attack_surrogate_and_measure_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sources.MEASURE_REFERENCES, "weight_norm", "kcmeasure:norm")
    requests = {
        "kcattack": {"measures": (MeasureRequest("evasion", (("attack", "kcattack:star"), ("budget", 1))),)},
        "kcpoison": {"poison": MeasureRequest("poison", (("attack", "kcpoison:star"), ("budget", 1)))},
        "kcsurrogate": {"poison": poisoned_by("kcsurrogate:Net")},
        "kcmeasure": {"measures": (MeasureRequest("weight_norm"),)},
    }
    for module, fields in requests.items():
        settings = []
        for text in ("K = 1", "K = 1", "K = 2"):
            (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
            settings.append(replace(PLAIN, **fields))  # type: ignore[arg-type]
        assert settings[0] == settings[1] != settings[2], module
        restored = Setting.from_content(json.loads(settings[0].content_json))
        assert restored == settings[0], "a setting from content has the hashes that it had"
        assert restored.surrogate == settings[0].surrogate
    surrogate = replace(PLAIN, poison=poisoned_by("kcsurrogate:Net")).surrogate
    assert surrogate is not None
    assert surrogate.code == source_digest("kcsurrogate:Net")
    assert dict(surrogate.measures[0].options).keys() == {"attack", "budget"}


def poisoned_by(surrogate: str) -> MeasureRequest:
    return MeasureRequest("poison", (("attack", "pgd"), ("budget", 0.1), ("surrogate", surrogate)))


def test_a_surrogate_of_ours_or_the_model_itself_adds_no_hash() -> None:
    itself = Setting(dataset="wine", model="kcitself:Net", poison=poisoned_by("kcitself:Net"))
    for setting in (replace(PLAIN, poison=poisoned_by("MLP")), itself):
        assert setting.poison == poisoned_by(dict(setting.poison.options)["surrogate"])  # type: ignore[union-attr, arg-type]
