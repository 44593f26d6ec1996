import pytest

from wtawp.experiments import Demo, run_demo


@pytest.fixture(scope="session")
def small_demo() -> Demo:
    """The demonstration, too short to mean anything."""
    return run_demo(dataset="wine", num_splits=2, epochs=3, workers=1)
