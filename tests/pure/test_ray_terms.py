"""Names and digests of actors, Ray's errors in words, and what an actor ends by itself."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ray_place import ANYWHERE

from ringbatch.engine.runtimes.opening import open_model
from ringbatch.engine.runtimes.ray.actor import REFUSED, ActorModel, Holder, Overseer
from ringbatch.engine.runtimes.ray.terms import (
    ActorName,
    actor_name,
    another_version,
    digest,
    lost,
    refused,
    waiting,
)

S = 1_000_000_000


@example("prod/a", "m%2F", "1/2", 0)
@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1), st.integers(0, 99))
def test_a_name_is_read_as_it_was_written(
    engine: str, model: str, version: str, worker: int
) -> None:
    try:
        name = ActorName(engine, model, version, worker, "0123456789abcdef")
        assert actor_name(name.text) == name
    except UnicodeEncodeError:
        pass  # half of a surrogate pair, which no configuration has


@pytest.mark.parametrize(
    "text",
    [
        "",
        "trainer",
        "ringbatch/prod/m/1/0",
        "ringbatch/prod/m/1/x/0123",
        "other/prod/m/1/0/0123",
        "ringbatch/prod/m/1/0/0123/more",
    ],
)
def test_names_of_others_are_none_of_ours(text: str) -> None:
    assert actor_name(text) is None


TERMS: dict[str, object] = {"loader": "python", "needs": {"CPU": 1.0}, "ringbatch": "1.2"}


def test_equal_models_have_equal_digests() -> None:
    content = np.frombuffer(b"weights", np.uint8)
    assert digest(content, TERMS) == digest(b"weights", dict(reversed(TERMS.items())))


@pytest.mark.parametrize(
    "other",
    [
        {"loader": "torch"},
        {"needs": {"CPU": 2.0}},
        {"ringbatch": "1.3"},
        {"ringbatch": "1.2\0loader='x'"},
        {"one_more": ""},
    ],
)
def test_any_difference_of_models_makes_another_digest(other: dict[str, object]) -> None:
    assert digest(b"weights", TERMS | other) != digest(b"weights", TERMS)
    assert digest(b"weightz", TERMS) != digest(b"weights", TERMS)


def error_of(*names: str, text: str = "") -> Exception:
    """Return an error like Ray's: of classes with these names, each below the one before."""
    kind: type[Exception] = Exception
    for name in names:
        kind = type(name, (kind,), {})
    return kind(text)


@pytest.mark.parametrize(
    ("names", "text", "words"),
    [
        (("RayError", "RayActorError", "ActorDiedError"), "x\nlast", "its actor has died: last"),
        (
            ("RayError", "RayActorError", "ActorDiedError"),
            "The actor is dead because its node has died. Node Id: 7",
            "the node of its actor has died: The actor is dead because its node has died. "
            "Node Id: 7",
        ),
        (
            ("RayError", "RayActorError", "ActorUnavailableError"),
            "socket closed",
            "its actor cannot be reached: socket closed",
        ),
        (("RayError", "NodeDiedError"), "", "the node of its actor has died: it says no more"),
        (("RayError", "ObjectStoreFullError"), "9 MB", "the object store is full: 9 MB"),
        (
            ("RayError", "ObjectLostError", "OwnerDiedError"),
            "gone",
            "an object of the batch is lost: gone",
        ),
        (("RayError", "OutOfMemoryError"), "n", "Ray has ended its actor, because the node is"),
        (("RayError", "LocalRayletDiedError"), "n", "the cluster's process on this host has died"),
    ],
)
def test_an_error_of_rays_is_a_death_with_its_reason(
    names: tuple[str, ...], text: str, words: str
) -> None:
    assert lost(error_of(*names, text=text)).startswith(words)


def test_another_error_is_no_death() -> None:
    assert lost(ValueError("its node has died")) == ""
    assert lost(error_of("RayError", "RayTaskError", text="its actor has died")) == ""


def test_a_node_without_ringbatch_is_no_reason_to_try_again() -> None:
    kinds = ("RayError", "RayActorError", "ActorDiedError")
    text = "The actor died because of an error raised in its creation task\nModuleNotFoundError: "
    missing = refused(error_of(*kinds, text=f"{text}No module named 'ringbatch'"), "1.2")
    assert missing.startswith("ringbatch is not installed on a node of the cluster; install ringba")
    assert "1.2" in missing
    broken = refused(error_of(*kinds, text=f"{text}No module named 'numpy'"), "1.2")
    assert broken.startswith("its actor cannot be made: ModuleNotFoundError: No module named 'num")
    assert refused(error_of(*kinds, text="worker process has died"), "1.2") == ""


def test_another_ringbatch_is_refused_in_words() -> None:
    assert another_version("1.2", "1.2") == ""
    assert "has ringbatch 1.1, and this host has 1.2" in another_version("1.1", "1.2")


def node(alive: bool = True, **resources: float) -> dict[str, object]:
    return {"Alive": alive, "Resources": resources}


def test_the_missing_resources_are_named() -> None:
    needs = {"CPU": 2.0, "GPU": 1.0}
    assert waiting(needs, []) == "the cluster has no node that lives"
    assert waiting(needs, [node(alive=False, CPU=9, GPU=9)]) == "the cluster has no node that lives"
    assert waiting(needs, [node(CPU=8), node(CPU=1, GPU=4)]) == (
        "no node of 2 has CPU 2, GPU 1; the most that one has: CPU 8, GPU 4; "
        "set a smaller ray_cpus or ray_gpus, or add such a node"
    )
    assert waiting(needs | {"rare": 1.0}, [node(CPU=8, GPU=0)]).endswith(
        "; set a smaller ray_gpus or ray_resources, or add such a node"
    )
    assert waiting(needs, [node(CPU=8, GPU=1)]).startswith("its actor waits for CPU 2, GPU 1 on")


def test_needs_are_the_resources_of_one_node() -> None:
    place = replace(ANYWHERE, cpus=0.5, resources=("tpu=2", "disk:nvme=0.5"), scheduling="spread")
    assert place.needs == {"CPU": 0.5, "tpu": 2.0, "disk:nvme": 0.5}


class Ends:
    """Overseer's ends of actors, counted, at a time that a test sets."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.ended: list[str] = []
        self.overseer = Overseer(
            lambda: self.ended.append("process"),
            lambda: self.ended.append("actor"),
            lambda: self.now_ns,
        )

    def look_at(self, second: float) -> list[str]:
        self.now_ns = int(second * S)
        self.overseer.look()
        return self.ended


def test_a_call_that_takes_too_long_ends_the_process_alone() -> None:
    ends = Ends()
    ends.overseer.keep_s = 1.0
    ends.overseer.begins(10.0)
    assert ends.look_at(9.9) == []
    assert ends.look_at(10.1) == ["process"]


def test_a_call_that_is_over_in_time_ends_nothing() -> None:
    ends = Ends()
    ends.overseer.keep_s = 60.0
    ends.overseer.begins(10.0)
    ends.now_ns = 9 * S
    ends.overseer.ends()
    assert ends.look_at(68.9) == []
    assert ends.overseer.idle_s == pytest.approx(59.9)
    assert ends.look_at(69.1) == ["actor"]


def test_before_it_knows_for_how_long_an_actor_waits() -> None:
    assert Ends().look_at(1e6) == []


class Model:
    """Model that writes into its inputs."""

    def __init__(self, inputs: int) -> None:
        self.runs = 0
        self.inputs = inputs

    def predict(self, *arrays: np.ndarray) -> list[float]:
        self.runs += 1
        assert len(arrays) == self.inputs
        arrays[-1][0] = 7
        return [float(array.sum()) for array in arrays]


def test_a_model_that_writes_gets_copies_from_then_on() -> None:
    holder, model = Holder("digest"), Model(2)
    fixed, free = np.ones(3), np.ones(3)
    fixed.flags.writeable = False
    assert holder._run(model.predict, [free, fixed]) == [3.0, 9.0]
    assert (model.runs, fixed.sum()) == (2, 3.0)
    assert holder._run(model.predict, [free, fixed]) == [3.0, 9.0]
    assert model.runs == 3


def test_a_model_that_raises_is_not_run_twice_for_it() -> None:
    holder = Holder("digest")
    runs = []

    def predict(array: np.ndarray) -> None:
        runs.append(array)
        raise ValueError("assignment destination is read-only")

    with pytest.raises(ValueError, match="read-only"):
        holder._run(predict, [np.ones(3)])
    assert len(runs) == 1


def test_an_actor_without_a_model_says_so() -> None:
    holder = Holder("digest")
    assert holder.predict(1.0, np.ones(3)) == ("empty",)
    assert not holder.kept()
    assert not holder.about()["loaded"]


def test_only_the_last_worker_may_end_an_actor() -> None:
    holder = Holder("digest")
    workers = [f"worker {random.random()}" for _ in range(2)]
    for worker in workers:
        holder.hello(worker, "host", 60.0)
    assert [holder.leave(worker) for worker in workers] == [False, True]


@pytest.mark.parametrize(
    "code",
    [
        "def predict(instances):\n    yield instances\n",
        "def begin(instances):\n    return instances\ndef step(states): ...\n",
    ],
    ids=["a generator", "in steps"],
)
def test_an_actor_refuses_a_model_that_answers_in_parts(code: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"name": "m", "threads": 1, "max_batch_size": 8}
    described = ActorModel(str(tmp_path / "m.py"), "python", options, 60.0, open_model)
    kind, text, *_ = Holder("digest").open(described, np.frombuffer(code.encode(), np.uint8))
    assert kind == REFUSED
    assert str(text).endswith(
        "the model answers in parts, but actors on Ray return whole answers; serve it with workers "
        "on this host"
    )
