"""What a user has registered, on its way into worker processes.

A registration lasts as long as its process. A sweep sends what is registered here along with every chunk, so that
workers know the same models, attacks, data sets and measures.
"""

from dataclasses import dataclass

from wtawp.attacks.registry import attack_names, register_attack, user_attacks
from wtawp.attacks.spec import AttackSpec
from wtawp.experiments.measures.shared.interface import MeasureSpec
from wtawp.experiments.measures.shared.registry import measure_names, register_measure, user_measures
from wtawp.graphs.registry import DatasetSpec, dataset_names, register_dataset, user_datasets
from wtawp.models.registry import ModelSpec, model_names, register_model, user_models


@dataclass(frozen=True)
class Registrations:
    """The entries that a user added to the registries.

    Attributes:
        models: Registered models.
        attacks: Registered attacks.
        datasets: Registered data sets.
        measures: Registered measures.
    """

    models: tuple[ModelSpec, ...] = ()
    attacks: tuple[AttackSpec, ...] = ()
    datasets: tuple[DatasetSpec, ...] = ()
    measures: tuple[MeasureSpec, ...] = ()

    @staticmethod
    def collect() -> "Registrations":
        """Everything that is registered in this process."""
        return Registrations(user_models(), user_attacks(), user_datasets(), user_measures())

    def apply(self) -> None:
        """Register what this process does not know yet; names that it knows stay as they are."""
        for model in self.models:
            if model.name not in model_names():
                register_model(model)
        for attack in self.attacks:
            if attack.name not in attack_names():
                register_attack(attack)
        for dataset in self.datasets:
            if dataset.name not in dataset_names():
                register_dataset(dataset)
        for measure in self.measures:
            if measure.name not in measure_names():
                register_measure(measure)
