from wtawp.experiments.execution.jobs import Job
from wtawp.experiments.spec import Run, Setting


def test_the_new_runs_of_a_job_are_those_without_a_record() -> None:
    runs = tuple(Run(Setting(dataset="wine"), 0, init) for init in range(3))
    assert Job(runs).new_indices == [0, 1, 2]
    assert Job(runs, stored=frozenset({runs[1].key})).new_indices == [0, 2]
    assert Job(runs, stored=frozenset(run.key for run in runs)).new_indices == []
