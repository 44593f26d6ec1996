import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.results.methods import MethodKind, method_of


@pytest.mark.parametrize(
    ("awp", "method"),
    [
        (None, MethodKind.PLAIN),
        (AwpConfig(rho=1.0, lam="auto"), MethodKind.WT_AWP),
        (AwpConfig(rho=0.0, lam=0.5), MethodKind.PLAIN),
        (AwpConfig(rho=1.0, lam=0.0), MethodKind.PLAIN),
        (AwpConfig(rho=1.0, lam=0.5), MethodKind.WT_AWP),
        (AwpConfig(rho=1.0, lam=0.5, layers="first"), MethodKind.WT_AWP),
        (AwpConfig(rho=1.0, lam=0.5, layers=("0.*",), radius="global"), MethodKind.WT_AWP),
        (AwpConfig(rho=1.0, lam=1.0), MethodKind.T_AWP),
        (AwpConfig(rho=1.0, lam=0.5, layers="all"), MethodKind.W_AWP),
        (AwpConfig(rho=1.0, lam=1.0, layers="all"), MethodKind.AWP),
        (AwpConfig(rho=1.0, lam=1.0, layers="all", balance=1.0), MethodKind.AWP),
        (AwpConfig(rho=0.05, lam=1.0, layers="all", radius="global"), MethodKind.SAM),
        (AwpConfig(rho=0.5, lam=1.0, layers="all", radius="adaptive"), MethodKind.ASAM),
        (AwpConfig(rho=0.05, lam=1.0, layers="*", radius="global"), MethodKind.SAM),
    ],
)
def test_weighted_and_truncated_name_the_method(awp: AwpConfig | None, method: MethodKind) -> None:
    assert method_of(awp) is method
