"""Tests engine/runtimes/python_steps.py: model files in steps, and the words of bad ones."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ringbatch.engine.runtimes.python import import_model
from ringbatch.shm.errors import StartupError

WriteModel = Callable[[str], Path]
pytestmark = pytest.mark.usefixtures("imports_as_before")

HEAD = "from ringbatch.engine import Tensor\n"


def test_a_model_in_steps_has_its_functions(tmp_model: WriteModel) -> None:
    text = """
repeatable = True
def begin(instances, request): return [(one, each) for one, each in zip(instances, request)]
def step(states): return states, [True] * len(states)
"""
    model = import_model(tmp_model(text))
    assert (model.in_steps, model.in_parts, model.asks) == (True, True, True)
    steps = model.steps
    assert steps is not None
    assert steps.repeatable
    assert steps.begin([1], ["r"]) == [(1, "r")]
    assert steps.step([1, 2]) == ([1, 2], [True, True])
    assert steps.end(1, "done") is None


def test_a_class_in_steps_has_an_end_of_its_own(tmp_model: WriteModel) -> None:
    text = """
class Model:
    def __init__(self): self.ended = []
    def begin(self, instances): return instances
    def step(self, states): return states, [True] * len(states)
    def end(self, state, reason): self.ended.append((state, reason))
"""
    steps = import_model(tmp_model(text)).steps
    assert steps is not None
    assert not steps.repeatable
    steps.end(7, "cancelled")
    assert steps.end.__self__.ended == [(7, "cancelled")]  # type: ignore[attr-defined]


ROWS = """
def load({load}): global loaded; loaded = ({load})
def begin(instances, {begin}): return (instances, rows)
def step(rows): return rows, [True] * len(rows)
def end(row, reason): pass
"""


@pytest.mark.parametrize(
    ("load", "loaded"),
    [("", ()), ("places", 5), ("device", "cuda:1"), ("device, places", ("cuda:1", 5))],
)
def test_a_begin_that_takes_rows_gets_numbers_of_places(
    tmp_model: WriteModel, load: str, loaded: object
) -> None:
    path = tmp_model(ROWS.format(load=load, begin="rows"))
    model = import_model(path, device="cuda:1", places=5)
    assert (model.in_steps, model.numbered, model.asks) == (True, True, False)
    assert model.steps is not None
    assert model.steps.places == 5
    assert model.steps.begin([1], rows=[0]) == ([1], [0])
    model.load()
    assert model.load.func.__globals__["loaded"] == loaded if load else True  # type: ignore[attr-defined]


def test_a_begin_may_take_rows_and_the_request(tmp_model: WriteModel) -> None:
    for begin in ("rows, request", "request, rows", "*, rows, request"):
        model = import_model(tmp_model(ROWS.format(load="", begin=begin)))
        assert (model.numbered, model.asks) == (True, True)
        assert model.steps is not None
        assert model.steps.begin([1], ["r"], rows=[0]) == ([1], [0])


def test_a_model_with_states_may_call_its_device_places(tmp_model: WriteModel) -> None:
    """Only one with rows knows how many places there are for as long as it is loaded."""
    text = "def load(places): global p; p = places\ndef begin(x): return x\ndef step(s): return s"
    model = import_model(tmp_model(text), device="cuda:1", places=5)
    assert not model.numbered
    assert model.load.args == ("cuda:1",)  # type: ignore[attr-defined]


def test_a_model_in_steps_declares_the_cost_of_a_row(tmp_model: WriteModel) -> None:
    text = (
        HEAD + "inputs = [Tensor('x', 'FP32', []), Tensor('n', 'INT64', [])]\n"
        "outputs = [Tensor('y', 'FP32', [])]\n"
        "def begin(x, n, request): pass\ndef step(states): pass\ndef cost(x, n): return x + n\n"
    )
    cost = import_model(tmp_model(text)).cost
    assert cost is not None
    assert cost(1, 2) == 3


def test_an_input_may_be_called_rows(tmp_model: WriteModel) -> None:
    text = (
        HEAD + "inputs = [Tensor('rows', 'FP32', [])]\noutputs = [Tensor('y', 'FP32', [])]\n"
        "def begin(rows): return [*rows]\ndef step(states): return states, [True] * len(states)\n"
    )
    assert not import_model(tmp_model(text)).numbered


def test_a_predict_beside_begin_is_served_as_any(tmp_model: WriteModel) -> None:
    text = "def begin(x): return x\ndef predict(instances): return instances\n"
    assert not import_model(tmp_model(text)).in_steps


STEPS = """
from ringbatch.engine import Tensor
inputs = [Tensor('x', 'FP32', [-1, 2]), Tensor('made', 'FP32', [-1, 2], default=[])]
outputs = [
    Tensor('y', 'FP32', [-1, 2]), Tensor('z', 'BYTES', []), Tensor('w', 'FP32', [-1, -1])
]
def begin(x, made): return [*x]
def step(states): pass
"""
BAD = {
    "begin-without-step": (
        "def begin(x): return x\n",
        r"model\.py: `begin` is there, so `step` must be as well: a model in steps needs both, and",
    ),
    "step-without-begin": (
        "class Model:\n    def step(self, states): pass\n",
        r"model\.py: `step` is there, so `begin` must be as well",
    ),
    "begin-is-no-function": (
        "begin = 3\ndef step(states): pass\n",
        r"`begin` is no function; .* a model in steps has begin and step in its place",
    ),
    "begin-yields": (
        "def begin(x): yield x\ndef step(states): pass\n",
        r"`begin` yields, but it must return",
    ),
    "begin-takes-too-few": (
        HEAD + "inputs = [Tensor('a', 'FP32', []), Tensor('b', 'FP32', [])]\n"
        "outputs = [Tensor('y', 'FP32', [])]\ndef begin(a): pass\ndef step(states): pass\n",
        r"begin\(a\) must take 2 arguments \(a, b\)",
    ),
    "step-is-no-function": (
        "def begin(x): return x\nstep = 3\n",
        r"`step` is an int, but it must be a function",
    ),
    "step-yields": (
        "def begin(x): return x\ndef step(states): yield states\n",
        r"`step` yields, but it must return; use return, not yield",
    ),
    "step-is-async": (
        "def begin(x): return x\nasync def step(states): pass\n",
        r"`step` is an async function, but a worker calls it and awaits nothing",
    ),
    "step-takes-nothing": (
        "def begin(x): return x\ndef step(): pass\n",
        r"step\(\) must take states",
    ),
    "begin-without-self": (
        "class Model:\n    def begin(): pass\n    def step(self, states): pass\n",
        r"begin\(\) takes no argument, but a method of Model must take self",
    ),
    "step-without-self": (
        "class Model:\n    def begin(self, x): return x\n    def step(states): pass\n",
        r"step\(states\) must take states behind self",
    ),
    "cost-without-self": (
        "class Model:\n    def begin(self, x): return x\n    def step(self, states): pass\n"
        "    def cost(): return 1\n",
        r"cost\(\) takes no argument, but a method of Model must take self",
    ),
    "step-without-any-argument": (
        "class Model:\n    def begin(self, x): return x\n    def step(): pass\n",
        r"step\(\) takes no argument, but a method of Model must take self",
    ),
    "end-without-self": (
        "class Model:\n    def begin(self, x): return x\n    def step(self, states): pass\n"
        "    def end(state, reason): pass\n",
        r"end\(state, reason\) must take state, reason behind self",
    ),
    "end-takes-no-reason": (
        "def begin(x): return x\ndef step(states): pass\ndef end(state): pass\n",
        r"end\(state\) must take state, reason",
    ),
    "step-takes-no-rows": (
        "def begin(x, rows): return None\ndef step(): pass\n",
        r"step\(\) must take rows",
    ),
    "end-takes-no-row": (
        "def begin(x, rows): pass\ndef step(rows): pass\ndef end(): pass\n",
        r"end\(\) must take row, reason",
    ),
    "load-takes-too-much": (
        "def load(device, places, more): pass\ndef begin(x, rows): pass\ndef step(rows): pass\n",
        r"load\(device, places, more\) must take no argument, the device, places, or both",
    ),
    "cost-takes-another-number": (
        HEAD + "inputs = [Tensor('a', 'FP32', []), Tensor('b', 'FP32', [])]\n"
        "outputs = [Tensor('y', 'FP32', [])]\ndef begin(a, b): pass\ndef step(states): pass\n"
        "def cost(a): return 1\n",
        r"cost\(a\) must take 2 arguments \(a, b\)",
    ),
    "cost-takes-nothing": (
        "def begin(x): return x\ndef step(states): pass\ndef cost(): return 1\n",
        r"cost\(\) must take 1 argument \(instance\)",
    ),
    "end-is-no-function": (
        "def begin(x): return x\ndef step(states): pass\nend = None\n",
        r"`end` is None, but it must be a function",
    ),
    "repeatable-is-no-bool": (
        "def begin(x): return x\ndef step(states): pass\nrepeatable = 'yes'\n",
        r"`repeatable` is a str, but it must be a bool",
    ),
    "resumable-is-no-dict": (
        STEPS + "resumable = True\n",
        r"`resumable` is a bool, but it must be a dict from the name of an output to the name of",
    ),
    "resumable-untyped": (
        "def begin(x): return x\ndef step(states): pass\nresumable = {'y': 'x'}\n",
        r"`resumable` names the output 'y'; outputs are: none, as the model file declares none",
    ),
    "resumable-without-its-output": (
        STEPS + "resumable = {'x': 'x'}\n",
        r"`resumable` names the output 'x'; outputs are: y, z, w",
    ),
    "resumable-without-its-input": (
        STEPS + "resumable = {'y': 'so_far'}\n",
        r"`resumable` names the input 'so_far'; inputs are: x, made",
    ),
    "resumable-needs-a-default": (
        STEPS + "resumable = {'y': 'x'}\n",
        r"the input 'x', which takes the parts of the output 'y', must be "
        r"Tensor\('x', 'FP32', \[-1, 2\], default=\[\]\)",
    ),
    "resumable-of-another-shape": (
        STEPS + "resumable = {'z': 'made'}\n",
        r"the input 'made', which takes .* 'z', must be Tensor\('made', 'BYTES', \[-1\], default",
    ),
    "resumable-of-two-open-dimensions": (
        STEPS + "resumable = {'w': 'made'}\n",
        r"the output 'w', of which only the first dimension may be of any size, but its shape is "
        r"\[-1, -1\]",
    ),
    "resumable-with-one-input-twice": (
        STEPS.replace("'BYTES', []", "'FP32', [2]") + "resumable = {'y': 'made', 'z': 'made'}\n",
        r"`resumable` names one input for two outputs",
    ),
}


@pytest.mark.parametrize(("source", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_model_file_gets_its_words(tmp_path: Path, source: str, words: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(source)
    with pytest.raises(StartupError, match=words) as caught:
        import_model(path)
    assert str(caught.value).startswith(f"{path}: ")
