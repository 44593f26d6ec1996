"""The registry of attacks: what each one is called, what it needs, what it costs, and one way to run them all.

Everybody who lists, checks, plans or runs attacks asks the `AttackSpec`, so that a new attack is one function and one
entry here (or one call of `register_attack`). Reading the registry imports neither torch nor torch_geometric.
"""

from wtawp.attacks.spec import AttackSpec, Stage
from wtawp.base import did_you_mean, is_reference, matching_name

_BUILT_IN = (
    AttackSpec(
        name="random", label="random", function="wtawp.attacks.random_attack:random_flips", needs="nothing",
        poisoning_options=(), evasion_options=(),
    ),
    AttackSpec(
        name="dice", label="DICE", function="wtawp.attacks.dice_attack:dice", needs="labels",
        poisoning_options=(("nodes", "all"), ("labels", "true")),
    ),
    AttackSpec(
        name="pgd", label="PGD", function="wtawp.attacks.pgd_attack:pgd",
        run_many="wtawp.attacks.pgd_attack:run_pgd", cost=15_000.0,
        poisoning_options=(("nodes", "train"), ("labels", "true"), ("steps", 200)), is_quadratic=True,
        strong_variants=(
            (("loss", "tanh_margin"), ("steps", 60), ("samples", 100)), (("loss", "ce"), ("steps", 200)),
        ),
        weak_options=(("loss", "ce"),),
        weakness="PGD on the cross-entropy is the paper's attack and a weak one: it spends flips on nodes that are "
        "misclassified already, and other attacks may take several times as much.",
    ),
    AttackSpec(
        name="minmax", label="Min-Max", function="wtawp.attacks.minmax_attack:minmax", stages=("poisoning",),
        cost=20_000.0, poisoning_options=(("nodes", "train"), ("labels", "true"), ("steps", 200)),
    ),
    AttackSpec(
        name="metattack", label="Metattack", function="wtawp.attacks.meta_attack:metattack",
        run_many="wtawp.attacks.meta_attack:run_metattack", stages=("poisoning",), needs="training", cost=150_000.0,
        poisoning_options=(("nodes", "unlabelled"), ("labels", "self-training"), ("steps", 100)),
    ),
    AttackSpec(
        name="meta-pgd", label="Meta-PGD", function="wtawp.attacks.meta_pgd_attack:meta_pgd", stages=("poisoning",),
        cost=15_000.0, poisoning_options=(("nodes", "unlabelled"), ("labels", "self-training")), unrolls_training=True,
        in_audit=False, searches_at_random=True,
    ),
    AttackSpec(
        name="prbcd", label="PRBCD", function="wtawp.attacks.prbcd_attack:prbcd", cost=20_000.0,
        strong_variants=((("steps", 60), ("block_size", 50_000)),), searches_at_random=True,
    ),
    AttackSpec(
        name="grbcd", label="GRBCD", function="wtawp.attacks.prbcd_attack:grbcd", cost=20_000.0,
        strong_variants=((("steps", 125), ("block_size", 50_000)),), searches_at_random=True, in_audit=False,
    ),
    AttackSpec(
        name="lrbcd", label="LR-BCD", function="wtawp.attacks.lrbcd_attack:lrbcd", cost=20_000.0, in_audit=False,
    ),
    AttackSpec(
        name="eva", label="EvA", function="wtawp.attacks.eva_attack:eva", needs="predictions", cost=20_000.0,
        strong_variants=((("steps", 20), ("population", 64)),), searches_at_random=True,
        audit_options=(("population", 32),),
    ),
    AttackSpec(name="fga", label="FGA", function="wtawp.attacks.fga_attack:fga", cost=5_000.0, in_audit=False),
    AttackSpec(
        name="nettack", label="Nettack", function="wtawp.attacks.nettack_attack:nettack",
        run_many="wtawp.attacks.nettack_attack:run_nettack", needs="predictions", cost=50.0,
        changes="edges and features", has_one_target=True, in_audit=False,
    ),
    AttackSpec(
        name="pgd-features", label="PGD on features", function="wtawp.attacks.feature_attack:pgd_features",
        stages=("evasion",), cost=15_000.0, changes="features", in_audit=False,
        # The loss is stated, so that records of the earlier default, the margin, do not pass for those of this one.
        evasion_options=(("nodes", "test"), ("labels", "true"), ("loss", "tanh_margin")),
    ),
    AttackSpec(
        name="prbcd-features", label="PRBCD on features", stages=("evasion",), cost=20_000.0, changes="features",
        function="wtawp.attacks.feature_block_attack:prbcd_features", searches_at_random=True, in_audit=False,
    ),
    AttackSpec(
        name="strongest", label="strongest of several", function="wtawp.attacks.strongest_attack:strongest",
        run_many="wtawp.attacks.strongest_attack:run_strongest", stages=("evasion",), needs="predictions",
        cost=80_000.0, uses_surrogate=True, title="the strongest of several attacks", in_audit=False,
    ),
)  # fmt: skip
_SPECS: dict[str, AttackSpec] = {spec.name: spec for spec in _BUILT_IN}
DEFAULT_ATTACK: dict[Stage, str] = {"evasion": "strongest", "poisoning": "metattack"}  # the strongest that is feasible


def attack_names(stage: Stage | None = None) -> tuple[str, ...]:
    """List the names of the registered attacks, in the order of their registration.

    Args:
        stage: "evasion" or "poisoning" for the attacks that can be used there. None: all attacks.

    Returns:
        The names.

    Example:
        >>> attack_names("evasion")
        ('random', 'dice', 'pgd', 'prbcd', 'grbcd', 'lrbcd', 'eva', 'fga', 'nettack', 'pgd-features', 'prbcd-features',
         'strongest')
    """
    return tuple(name for name, spec in _SPECS.items() if stage is None or stage in spec.stages)


def attack_spec(name: str) -> AttackSpec:
    """Look up an attack by its name, or describe a user's attack that is named by a reference.

    Args:
        name: The name of a registered attack, in upper or lower case; or "package.module:function" for any other
            function with the signature that `AttackSpec` describes. A reference gets the default values
            of all other fields, and is not imported.

    Returns:
        The attack's entry in the registry.

    Raises:
        ValueError: If no attack has this name.

    Example:
        >>> attack_spec("dice").label
        'DICE'
        >>> attack_spec("my_package.attacks:swap").is_user_code
        True
    """
    if (registered := matching_name(name, _SPECS)) is not None:
        return _SPECS[registered]
    if is_reference(name):  # whether it differentiates is not known before it is imported
        return AttackSpec(
            name=name, label=name.rpartition(":")[2], function=name, needs="predictions", is_user_code=True
        )
    hint = did_you_mean(name, _SPECS)
    raise ValueError(f"attack must be one of {', '.join(_SPECS)}, or package.module:function, got {name!r}{hint}")


def register_attack(spec: AttackSpec) -> AttackSpec:
    """Add an attack of your own to the registry, under a name that is not taken.

    It can then be used wherever an attack is named: in `attack`, in plans, and on the command line of a program that
    has registered it.

    Args:
        spec: The attack. The simplest one has a name, a label and a function.

    Returns:
        The same spec.

    Raises:
        ValueError: If the name is taken, or holds a colon, which marks references.

    Example:
        >>> def swap(data, *, budget, seed):
        ...     ...
        >>> _ = register_attack(AttackSpec(name="swap", label="Swap", function=swap, needs="nothing"))
        >>> unregister_attack("swap").label
        'Swap'
    """
    if ":" in spec.name:
        raise ValueError(f"the name of a registered attack must not hold a colon, got {spec.name!r}")
    if (taken := matching_name(spec.name, _SPECS)) is not None:
        raise ValueError(f"an attack named {taken!r} is registered already; choose another name")
    _SPECS[spec.name] = spec
    return spec


def user_attacks() -> tuple[AttackSpec, ...]:
    """The attacks that `register_attack` added, for other processes to register as well.

    Returns:
        Their specifications.
    """
    return tuple(spec for spec in _SPECS.values() if spec not in _BUILT_IN)


def is_user_attack(name: str) -> bool:
    """Whether an attack is one of the user.

    Args:
        name: The name of a registered attack, or a reference to a function.

    Returns:
        True for a reference, and for an attack that `register_attack` added.

    Raises:
        ValueError: If no attack has this name.

    Example:
        >>> is_user_attack("dice"), is_user_attack("my_package.attacks:swap")
        (False, True)
    """
    spec = attack_spec(name)
    return spec.is_user_code or spec in user_attacks()


def unregister_attack(name: str) -> AttackSpec:
    """Remove an attack that `register_attack` added.

    Args:
        name: Its name.

    Returns:
        The spec that was removed.

    Raises:
        ValueError: If no attack has this name, or if the attack is built in.
    """
    if name not in _SPECS or _SPECS[name] in _BUILT_IN:
        raise ValueError(f"{name!r} is not an attack that register_attack added")
    return _SPECS.pop(name)
