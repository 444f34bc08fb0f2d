"""Chains: how the outputs and inputs of steps are matched, and the errors if they do not match."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chain_harness import chain, step
from segment_fixture import spec

from ringbatch.engine.config.chained import ChainConfig, StepConfig
from ringbatch.engine.config.description import describe
from ringbatch.engine.config.document import Config, ConfigError, conclude
from ringbatch.engine.supervisor.chains import Unfit, broken, first_chains, fitted, with_limits
from ringbatch.engine.supervisor.model_diff import ChainChange, Change, with_chains
from ringbatch.shm.chain import REQUEST, Source, asked, reference_in, step_in
from ringbatch.shm.model_spec import RETIRING, ModelSpec, dumps, loads
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [3])
Y = Tensor("y", "FP32", [3])
OPEN = Tensor("x", "FP32", [-1])
TEXT = Tensor("text", "BYTES", [])
IDS = Tensor("ids", "INT64", [-1])
VECTOR = Tensor("vector", "FP32", [2])
SCORE = Tensor("score", "FP32", [])


def model(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], index: int = 0, **more: Any
) -> ModelSpec:
    return replace(spec(index, inputs, outputs, name=name, workers=(index,)), **more)


LINE = [model(name, [X], [Y], n) for n, name in enumerate("abc")]
SEARCH = [
    model("tokenize", [TEXT], [IDS], 0),
    model("encode", [IDS], [VECTOR], 1),
    model("rank", [VECTOR, TEXT], [SCORE], 2),
]


def names(tensors: Sequence[Tensor]) -> list[str]:
    return [tensor.name for tensor in tensors]


def test_a_step_takes_the_only_output_of_the_previous_step_under_any_name() -> None:
    found = fitted(chain("abc", "a", "b", "c"), LINE)
    assert (found.inputs, found.outputs) == ((X,), (Y,))
    assert [s.sources for s in found.chain.steps] == [
        (Source(REQUEST, 0),),
        (Source(0, 0),),
        (Source(1, 0),),
    ]
    assert [s.keeps for s in found.chain.steps] == [(0,), (0,), ()]
    assert found.chain.answers == (Source(2, 0),)


def test_a_step_takes_the_tensor_of_its_inputs_name_from_a_step_or_the_request() -> None:
    found = fitted(chain("search", "tokenize", "encode", "rank"), SEARCH)
    assert found.chain.steps[2].sources == (Source(1, 0), Source(REQUEST, 0))
    assert found.inputs == (TEXT,)


def test_names_count_before_the_order() -> None:
    pair = [Tensor("p", "FP32", [3]), Tensor("q", "FP32", [3])]
    models = [model("a", [X], pair, 0), model("b", pair[::-1], [Y], 1)]
    found = fitted(chain("ab", "a", "b"), models)
    assert found.chain.steps[1].sources == (Source(0, 1), Source(0, 0))


def test_several_outputs_are_taken_in_order_where_no_name_agrees() -> None:
    pair = [Tensor("p", "FP32", [3]), Tensor("q", "FP32", [3])]
    other = [Tensor("r", "FP32", [3]), Tensor("s", "FP32", [3])]
    found = fitted(chain("ab", "a", "b"), [model("a", [X], pair, 0), model("b", other, [Y], 1)])
    assert found.chain.steps[1].sources == (Source(0, 0), Source(0, 1))


def test_an_output_that_no_later_step_takes_is_not_kept() -> None:
    outputs = [Tensor("unused", "FP32", [1000]), Y]
    found = fitted(chain("ab", "a", step("b", x="y")), [model("a", [X], outputs, 0), LINE[1]])
    assert found.chain.steps[0].keeps == (1,)
    assert found.chain.steps[1].sources == (Source(0, 0),)


def test_outputs_of_one_name_are_distinguished_by_the_model() -> None:
    config = chain("abc", "a", "b", step("c", x="a.y"), returns=["b.y", "c.y"])
    with pytest.raises(Unfit, match="returns: 'y' is there twice"):
        fitted(config, LINE)
    renamed = chain("abc", "a", step("b", {"y": "of_b"}), step("c", x="a.y"), returns=["of_b", "y"])
    found = fitted(renamed, LINE)
    assert found.chain.steps[2].sources == (Source(0, 0),)
    assert found.chain.answers == (Source(1, 0), Source(2, 0))
    assert names(found.outputs) == ["of_b", "y"]


def test_an_input_of_any_size_takes_one_of_a_known_size_and_never_the_other_way_round() -> None:
    models = [model("a", [X], [Y], 0), model("b", [OPEN], [OPEN], 1), model("c", [X], [Y], 2)]
    assert fitted(chain("ab", "a", "b"), models)
    with pytest.raises(Unfit) as unfit:
        fitted(chain("bc", "b", "c"), models)
    assert str(unfit.value) == (
        "step 2 (c): its input 'x' is FP32 [3], but step 1 (b) gives 'x' as FP32 [-1]"
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            chain("m", "tokenize", "rank"),
            "step 2 (rank): nothing gives its input 'vector'; name one of 'ids', or a tensor of "
            "the request as request.NAME, in inputs = { vector = ... }",
        ),
        (
            chain("m", "tokenize", step("rank", vector="ids")),
            "step 2 (rank): its input 'vector' is FP32 [2], but step 1 (tokenize) gives 'ids' as "
            "INT64 [-1]",
        ),
        (
            chain("m", "tokenize", step("encode", ids="tokens")),
            "step 2 (encode): its input 'ids' is to be 'tokens', but there is 'ids', or a tensor "
            "of the request as request.NAME",
        ),
        (
            chain("m", "tokenize", step("encode", text="ids")),
            "step 2 (encode) has no input 'text'; there is: 'ids'",
        ),
        (
            chain("m", step("tokenize", {"tokens": "t"})),
            "step 1 (tokenize) has no output 'tokens'; there is: 'ids'",
        ),
        (chain("m", "tokenize", "gone"), "step 2 (gone): no model 'gone' serves"),
        (
            chain("m", StepConfig(model="tokenize", version="7")),
            "step 1 (tokenize): no model 'tokenize' version 7 serves",
        ),
        (
            chain("m", "tokenize", step("encode", ids="request.ids")),
            "step 1 (tokenize): nothing takes what it gives",
        ),
        (
            chain("m", "tokenize", "encode", returns=["vectors"]),
            "returns: there is no 'vectors'; there is 'ids', 'vector'",
        ),
        (
            chain("m", "lists"),
            "step 1 (lists) declares no inputs and outputs; between steps there are tensors, so "
            "the model of each must declare its own",
        ),
        (
            chain("m", step("rank", vector="text")),
            "step 1 (rank): two of its inputs are to be 'text'",
        ),
    ],
)
def test_a_mismatch_is_described(config: ChainConfig, words: str) -> None:
    with pytest.raises(Unfit) as unfit:
        fitted(config, [*SEARCH, model("lists", [], [], 3)])
    assert str(unfit.value) == words


def test_an_entry_comes_back_from_the_model_table_as_it_was() -> None:
    entries = first_chains([chain("search", "tokenize", "encode", "rank")], tuple(SEARCH))
    assert loads(dumps(entries)) == entries
    assert entries[3].index == entries[3].account == 3
    assert (entries[3].platform, entries[3].workers) == ("chain", ())


def test_a_start_names_the_chain_that_does_not_fit() -> None:
    with pytest.raises(Unfit, match=r"^\[models\.m\] step 2 \(c\): no model 'c' serves$"):
        first_chains([chain("m", "a", "c")], tuple(LINE[:2]))


@pytest.mark.parametrize(
    ("sizes", "most"), [((8, 4, 32), 4), ((0, 4, 32), 1), ((0, 0, 0), 0), ((1, 1, 1), 1)]
)
def test_a_chain_takes_as_many_instances_as_each_of_its_steps(
    sizes: Sequence[int], most: int
) -> None:
    models = [replace(m, max_batch_size=n) for m, n in zip(LINE, sizes, strict=True)]
    entries = first_chains([chain("abc", "a", "b", "c")], tuple(models))
    assert entries[3].max_batch_size == most
    if models[0].batched:
        changed = with_limits((replace(models[0], max_batch_size=2), *entries[1:]))
        assert changed[3].max_batch_size == min(2, most)


def put_together(*models: ModelSpec) -> tuple[ModelSpec, ...]:
    entries = first_chains([chain("abc", "a", "b", "c")], tuple(LINE))
    return (*models, entries[3])


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (LINE, ""),
        ([replace(LINE[0], max_batch_size=1, workers=(7, 8)), *LINE[1:]], ""),
        (
            LINE[:2],
            "c is needed by chain 'abc', whose step 3 it is; unload abc first",
        ),
        (
            [*LINE[:2], replace(LINE[2], state=RETIRING)],
            "c is needed by chain 'abc', whose step 3 it is; unload abc first",
        ),
        (
            [LINE[0], replace(LINE[1], outputs=(X,)), LINE[2]],
            "b would take or return other tensors than chain 'abc', whose step 2 it is, was made "
            "with; unload abc first, and load it again afterwards",
        ),
        ([LINE[0], replace(LINE[1], max_batch_size=0), LINE[2]], "b would take"),
        ([*LINE, replace(LINE[0], version="2", index=9, inputs=(OPEN,))], "a would take"),
        ([*LINE, replace(LINE[0], version="2", index=9)], ""),
    ],
)
def test_a_change_that_would_break_a_chain_is_seen(models: Sequence[ModelSpec], words: str) -> None:
    found = broken(put_together(*models))
    assert found.startswith(words)
    assert bool(found) == bool(words)
    retiring = tuple(replace(s, state=RETIRING) if s.chain else s for s in put_together(*models))
    assert broken(retiring) == found, "requests for it may still be under way"


def test_a_step_may_name_a_version() -> None:
    models = [LINE[0], *(replace(LINE[1], version=v, index=n) for v, n in (("1", 1), ("2", 5)))]
    entries = first_chains([chain("m", "a", StepConfig(model="b", version="1"))], tuple(models))
    assert broken(entries) == ""
    without = tuple(spec for spec in entries if (spec.name, spec.version) != ("b", "1"))
    assert broken(without) == (
        "b version 1 is needed by chain 'm', whose step 2 it is; unload m first"
    )


def test_the_word_of_a_step_has_the_reference_and_the_number() -> None:
    word = asked(123 << 16 | 45, 6)
    assert (reference_in(word), step_in(word)) == (123 << 16 | 45, 6)
    assert asked(77, 0) == 77


def test_in_a_reload_every_chain_has_its_steps_at_each_moment() -> None:
    """`kept` stays as it is, `changed` changes, `old` goes; `was` becomes a chain, `plain` none,
    each in the place of what has its name."""
    old = [chain(name, "a") for name in ("kept", "changed", "old", "plain")]
    new = [chain("kept", "a"), chain("was", "a"), chain("changed", "b"), chain("new", "a")]
    load, retire = (replace(LINE_CONFIG, name=name) for name in ("loaded", "gone"))
    changes = [
        Change("gone", retire=(retire.version,)),
        Change("loaded", load=(load,)),
        Change("plain", load=(load,)),
        Change("was", retire=("1",)),
    ]
    ordered = with_chains(changes, old, new)
    assert [change.name for change in ordered] == [
        "old",
        "plain",
        "loaded",
        "changed",
        "new",
        "was",
        "gone",
    ]
    assert [c.put for c in ordered if isinstance(c, ChainChange)] == [
        None,
        *new[2:],
        new[1],
    ]


def configured(text: str) -> Config:
    source = "[models.a]\npath = 'a.py'\n[models.b]\npath = 'b.py'\n" + text
    return conclude(tomllib.loads(source), source="it", base=Path("/"), is_file=lambda _path: True)


LINE_CONFIG = configured("").models[0]


def test_a_section_with_steps_is_a_chain() -> None:
    config = configured(
        "[models.m]\nsteps = ['a', { model = 'b', version = '1', inputs = { x = 'y' }, "
        "outputs = { y = 'z' } }]\nreturns = ['z']\ntimeout_s = 3\n"
    )
    assert [m.name for m in config.models] == ["a", "b"]
    second = StepConfig(model="b", version="1", inputs=(("x", "y"),), outputs=(("y", "z"),))
    assert config.chains == (
        ChainConfig(
            name="m",
            steps=(StepConfig(model="a"), second),
            returns=("z",),
            timeout_s=3.0,
        ),
    )


def test_a_chain_that_is_described_is_the_same_when_it_is_read_again() -> None:
    config = configured(
        "[models.'m.x']\nsteps = ['a', { model = 'b', inputs = { 'x y' = 'y' } }]\n"
        "returns = ['y']\nkserve_errors = true\n"
    )
    again = conclude(
        tomllib.loads(describe(config)), source="it", base=Path("/"), is_file=lambda _path: True
    )
    assert again.chains == config.chains


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("steps = []", "steps: found [], but it must be a list of 1 to 64 steps"),
        ("steps = 'a'", 'steps: found "a", but it must be a list of 1 to 64 steps'),
        ("steps = ['c']", 'steps: step 1: there is no model "c"; there is: a, b'),
        ("steps = ['m']", "steps: step 1: is the chain itself, so that it would never end"),
        (
            "steps = ['a', 'n']\n[models.n]\nsteps = ['m']",
            'steps: step 2: "n" is a chain itself; put its steps here in its place',
        ),
        ("steps = [7]", "steps: step 1: found 7, but it must be a model's name or a table"),
        ("steps = [{ inputs = {} }]", "steps: step 1: model is missing"),
        ("steps = [{ model = 'a', x = 1 }]", "steps: step 1: x: unknown key; known are model, "),
        (
            "steps = [{ model = 'a', input = { x = 'y' } }]",
            "steps: step 1: input: unknown key; did you mean inputs?",
        ),
        (
            "steps = [{ model = 'a', inputs = ['x'] }]",
            'steps: step 1: inputs: found ["x"], but it must be a table of names',
        ),
        (
            "steps = [{ model = 'a', version = '4' }]",
            'steps: step 1: "a" has no version "4"; there is: "1"',
        ),
        ("steps = ['a']\nreturns = ['y', 'y']", 'returns: found ["y", "y"], but it must be a list'),
        ("steps = ['a']\ntimeout_s = 0", "timeout_s: found 0, but it must be"),
        (
            "steps = ['a']\nworkers = 2",
            "workers: is not for a chain, which has steps: each step's model has its own",
        ),
        (
            "steps = ['a']\npath = 'a.py'",
            "path: is not for a chain, which has steps: each step's model has its own",
        ),
        ("steps = ['a']\nsteep = 1", "steep: unknown key; did you mean steps?"),
        ("steps = ['a']\ntimeout = 60", "timeout: unknown key; did you mean timeout_s?"),
        ("steps = ['a']\nzzz = 1", "zzz: unknown key; known are steps, returns, timeout_s"),
    ],
)
def test_a_fault_of_a_section_is_reported_with_its_place(section: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        configured(f"[models.m]\n{section}\n")
    assert any(line.startswith(f"it: [models.m] {words}") for line in error.value.problems), (
        json.dumps(error.value.problems, indent=1)
    )


def test_a_model_that_takes_request_contexts_is_no_step() -> None:
    asking = replace(model("b", [Y], [Y], 1), words=("x-tenant",))
    with pytest.raises(Unfit, match=r"^step 2 \(b\) takes the contexts of requests"):
        fitted(chain("ab", "a", "b"), [model("a", [X], [Y], 0), asking])
