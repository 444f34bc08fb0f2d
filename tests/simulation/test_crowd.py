"""Many models share the autoscaler, and each is served in its turn."""

from collections.abc import Iterator

import pytest
from simulation.crowd import MUTANTS, Crowd
from simulation.kernel import Violation
from simulation.mutation import Mutant
from simulation.supervised import quiet
from tiers import exhaustive, first_of, only

MODELS = 64
LASTS_S = 30.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("seed", first_of(range(4), 1))
def test_no_request_of_64_models_waits_much_longer_than_others(seed: int) -> None:
    Crowd(seed, MODELS, LASTS_S).run()


@exhaustive
@pytest.mark.parametrize("models", [2, 5, 16, 96])
def test_of_any_number_of_models_none_waits_for_a_place_that_is_free(models: int) -> None:
    Crowd(0, models, LASTS_S).run()


@pytest.mark.parametrize("mutant", only(MUTANTS, "one at a time", "downs before ups"))
def test_an_autoscaler_with_a_defect_is_found_out(mutant: Mutant) -> None:
    with mutant.applied(), pytest.raises(Violation):
        Crowd(0, MODELS, LASTS_S).run()
