"""Workers here and in a Ray cluster side by side: what is configured, told, entered and changed."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.config.description import describe
from ringbatch.engine.config.document import Config, ConfigError, conclude
from ringbatch.engine.config.limit_messages import batch_timeout
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.ipc import instructions
from ringbatch.engine.process.cpu_plan import Host
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.change_plan import ChangePlan
from ringbatch.engine.supervisor.model_diff import Change, must_load
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries

SIGNATURE = Signature((), ())


def concluded(*lines: str) -> Config:
    text = "\n".join(["[models.m]", 'path = "m.py"', *lines])
    return conclude(tomllib.loads(text), source="x.toml", base=Path("/"), is_file=lambda _: True)


def problem(*lines: str) -> str:
    with pytest.raises(ConfigError) as caught:
        concluded(*lines)
    (found,) = caught.value.problems
    return found


def model(**more: Any) -> ModelConfig:
    return replace(ModelConfig(name="m", runtime="python", path=Path("/m.py")), **more)


def test_both_are_configured_and_described() -> None:
    config = concluded("workers = 2", "ray_workers = [0, 8]", "ray_gpus = 1")
    (found,) = config.models
    assert (found.fewest_workers, found.most_workers, found.follows_load) == (2, 10, True)
    assert [found.is_in_ray(index) for index in (0, 1, 2, 9)] == [False, False, True, True]
    assert found.platform == "python"
    assert concluded(*describe(config).partition("[models.m]\n")[2].splitlines()[3:]) == config


def test_a_number_of_them_is_no_range() -> None:
    (found,) = concluded("workers = 2", "ray_workers = 3").models
    assert (found.fewest_workers, found.most_workers, found.follows_load) == (5, 5, False)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['runtime = "ray"', "ray_workers = 2"], "ray_workers: is for actors beside workers on"),
        (["spares = 1", "ray_workers = 2"], "spares: is for models without ray_workers"),
        (["ray_cpus = 2"], "ray_cpus: is for the runtime ray, but this model's is python"),
        (["ray_workers = 0"], "ray_workers: found 0, but it must be a whole number from 1 to 64"),
    ],
)
def test_incompatible_settings_are_refused_in_words(lines: list[str], words: str) -> None:
    assert words in problem(*lines)


def test_they_count_among_all_workers() -> None:
    models = {
        str(name): {"path": "m.py", "workers": 64, "ray_workers": [0, 64]} for name in range(9)
    }
    with pytest.raises(ConfigError) as caught:
        conclude({"models": models}, source="x", base=Path("/"), is_file=lambda _: True)
    assert "1152 workers in all, but at most 1024 are possible" in str(caught.value)


def test_a_server_has_no_workers_in_a_cluster() -> None:
    with pytest.raises(ConfigError) as caught:
        conclude(
            {"models": {"m": {"path": "http://h:1", "ray_workers": 2}}}, source="x", base=Path("/")
        )
    assert "ray_workers: is for model files" in str(caught.value)


def test_each_worker_knows_where_its_model_is_held() -> None:
    both = model(workers=1, ray_workers=1, worker_memory_bytes=1 << 30)
    here, elsewhere = (instructions.of(both, index, "e", again=False) for index in (0, 1))
    assert (here.runtime, here.options.ray, here.worker_memory_bytes) == ("python", None, 1 << 30)
    assert (elsewhere.runtime, elsewhere.worker_memory_bytes) == ("ray", 0)
    assert elsewhere.options.ray is not None
    assert (elsewhere.options.ray.loader, elsewhere.options.ray.index) == ("python", 1)
    # One that waits for an actor has time to give up first.
    assert "5 s beyond it" in batch_timeout(both)


def test_those_elsewhere_have_no_share_of_the_cpus_here() -> None:
    config = Config(models=(model(workers=1, ray_workers=3),))
    plan, _ = instructions.placed(config, Host(tuple(range(4)), {}, 4))
    assert [worker.threads for worker in plan.workers] == [4, 1, 1, 1]


def test_the_table_marks_remote_workers() -> None:
    both = model(workers=2, ray_workers=(1, 3))
    (spec,) = first_entries((both,), dict.fromkeys(range(3), SIGNATURE), Forwarding())
    assert (spec.workers, spec.remote, spec.limits) == ((0, 1, 2), (2,), (3, 5))
    change = Change("m", adjust=(both,), running={"1": 5})
    plan = ChangePlan.of(change, (spec,)).numbered([7, 8])
    (grown,) = plan.entered((spec,), ())
    assert (grown.workers, grown.remote) == ((0, 1, 2, 7, 8), (2, 7, 8))
    (switched,) = plan.switched((grown,), ()).entries
    assert switched.remote == (2, 7, 8)
    fewer = ChangePlan.of(Change("m", adjust=(both,), running={"1": 3}), (switched,)).numbered([])
    (shrunk,) = fewer.switched((switched,), ()).entries
    assert (shrunk.workers, shrunk.remote) == ((0, 1, 2), (2,))


def test_null_is_a_missing_value_wherever_a_table_is_predicted() -> None:
    ubj = model(path=Path("/m.ubj"), runtime=None)
    for one in (ubj, replace(ubj, runtime="ray"), replace(ubj, ray_workers=1)):
        (spec,) = first_entries((one,), dict.fromkeys(range(2), SIGNATURE), Forwarding())
        assert spec.nulls
    (spec,) = first_entries((model(runtime="ray"),), {0: SIGNATURE}, Forwarding())
    assert not spec.nulls


@pytest.mark.parametrize(
    ("before", "after", "anew"),
    [
        ({"workers": 2}, {"workers": 2, "ray_workers": (0, 8)}, False),
        ({"workers": 2, "ray_workers": (0, 8)}, {"workers": 2, "ray_workers": (0, 4)}, False),
        ({"workers": 2, "ray_workers": 2}, {"workers": 3, "ray_workers": 2}, True),
        ({"workers": (1, 4)}, {"workers": 1, "ray_workers": (0, 3)}, True),
        ({"workers": 2}, {"workers": 2, "ray_workers": 1, "timeout_s": 9.0}, True),
    ],
)
def test_a_change_keeps_workers_where_they_keep_their_places(
    before: dict[str, Any], after: dict[str, Any], anew: bool
) -> None:
    assert must_load(model(**before), model(**after)) is anew
