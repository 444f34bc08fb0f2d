"""Model files: what the good ones give, and the words that each bad one gets.

Tests engine/runtimes/python.py. Tests engine/runtimes/sibling_modules.py.
"""

import importlib
import os
import pickle
import py_compile
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from ringbatch.engine.models.model import Options, failure
from ringbatch.engine.runtimes.python import import_model, open_python
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor

WriteModel = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("imports_as_before")


TYPED = """
    from ringbatch.engine import Tensor
    inputs = [Tensor("a", "FP32", [2]), Tensor("b", "INT64", [])]
    outputs = (Tensor("y", "FP32", [-1]),)
    def predict(a, b):
        return a + b
"""


def test_a_module_gives_its_parts(tmp_model: WriteModel) -> None:
    model = import_model(tmp_model(TYPED))
    assert model.inputs == (Tensor("a", "FP32", [2]), Tensor("b", "INT64", []))
    assert model.outputs == (Tensor("y", "FP32", [-1]),)
    assert model.load() is None
    assert model.predict(1, 2) == 3


@pytest.mark.parametrize("name", ["digits", "digits-2"])
def test_a_model_file_is_the_module_that_its_folder_has_by_that_name(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text("def predict(instances):\n    return instances")
    model = import_model(path)
    assert importlib.import_module(name).predict is model.predict
    assert pickle.loads(pickle.dumps(model.predict)) is model.predict


@pytest.mark.parametrize("name", ["pytest", "colorsys", "digits.v2"])
def test_a_model_file_takes_no_other_modules_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text("def predict(instances):\n    return instances")
    before = sys.modules.get(name)
    model = import_model(path)
    assert sys.modules.get(name) is before
    assert pickle.loads(pickle.dumps(model.predict)) is model.predict


def test_a_replaced_file_of_the_same_size_and_second_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "replaced.py"
    for number in (1, 2):
        path.write_text(f"def predict(instances):\n    return {number}")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        assert import_model(path).predict([]) == number
        # As pools import it, and as its owner may have run it.
        py_compile.compile(str(path), doraise=True)
        del sys.modules["replaced"]


@pytest.mark.parametrize("name", ["beside", "package/beside"])
def test_so_are_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    model, module = tmp_path / "asks.py", tmp_path / f"{name}.py"
    module.parent.mkdir(exist_ok=True)
    dotted = name.replace("/", ".")
    model.write_text(
        f"from {dotted} import number\ndef predict(instances):\n    return number", "utf-8"
    )
    for number in (1, 2):
        module.write_text(f"number = {number}")
        os.utime(module, (1_700_000_000, 1_700_000_000))
        assert import_model(model).predict([]) == number
        compiled = Path(py_compile.compile(str(module), doraise=True) or "")
        for loaded in ("asks", dotted):
            del sys.modules[loaded]
    # What was compiled long after the last change is of no other text.
    module.write_text("number = 3")
    os.utime(module, (1_700_000_000, 1_700_000_000))
    later = module.stat().st_ctime + 60
    os.utime(compiled, (later, later))
    assert import_model(model).predict([]) == 2


def test_an_environment_below_its_folder_is_left_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "env" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed_there.py").write_text("number = 1")
    monkeypatch.syspath_prepend(packages)
    model = tmp_path / "asks.py"
    model.write_text("import installed_there\ndef predict(instances):\n    return instances")
    import_model(model)
    spec = sys.modules["installed_there"].__spec__
    assert spec is not None
    assert type(spec.loader) is SourceFileLoader


def test_without_inputs_it_is_untyped(tmp_model: WriteModel) -> None:
    model = import_model(tmp_model("def predict(instances):\n    return instances"))
    assert model.inputs == model.outputs == ()
    assert model.predict([1]) == [1]


def test_a_class_named_model_is_made_and_its_methods_are_the_parts(tmp_model: WriteModel) -> None:
    model = import_model(
        tmp_model(
            """
            from ringbatch.engine import Tensor
            class Model:
                inputs = [Tensor("x", "FP32", [1])]
                def __init__(self):
                    self.outputs = [Tensor("y", "FP32", [1])]
                    self.factor = 0
                def load(self):
                    self.factor = 3
                def predict(self, x):
                    return x * self.factor
            """
        )
    )
    assert model.outputs == (Tensor("y", "FP32", [1]),)
    model.load()
    assert model.predict(2) == 6


@pytest.mark.parametrize(
    ("own", "answer"),
    [("", "library"), ("def predict(instances): return 'file'", "file")],
    ids=["no-function", "a-function"],
)
def test_an_imported_class_named_model_is_served_where_the_file_has_no_predict(
    tmp_model: WriteModel, own: str, answer: str
) -> None:
    path = tmp_model(f"from library_of_models import Model\n{own}\n")
    library = "class Model:\n    def predict(self, instances): return 'library'\n"
    path.with_name("library_of_models.py").write_text(library)
    assert import_model(path).predict([1]) == answer


def test_load_is_not_called_by_the_import(tmp_model: WriteModel) -> None:
    model = import_model(
        tmp_model(
            """
            loaded = []
            def load(): loaded.append(1)
            def predict(instances): return list(loaded)
            """
        )
    )
    assert model.predict([]) == []
    model.load()
    assert model.predict([]) == [1]


def test_a_model_file_imports_modules_beside_it(tmp_model: WriteModel) -> None:
    tmp_model("FACTOR = 7", name="beside_the_model.py")
    model = import_model(
        tmp_model("import beside_the_model as b\ndef predict(x): return [b.FACTOR * v for v in x]")
    )
    assert model.predict([1, 2]) == [7, 14]


def test_classes_of_a_model_file_know_their_module(tmp_model: WriteModel) -> None:
    """Dataclasses with annotations kept as text look it up."""
    model = import_model(
        tmp_model(
            """
            from __future__ import annotations
            from dataclasses import dataclass, field
            from typing import ClassVar
            @dataclass
            class Settings:
                names: ClassVar[list[str]] = ["a"]
                size: int = 3
            def predict(instances): return [Settings().size for _ in instances]
            """
        )
    )
    assert model.predict([0]) == [3]


def test_further_arguments_with_defaults_do_no_harm(tmp_model: WriteModel) -> None:
    model = import_model(tmp_model("def predict(x, scale=2, *rest, **more): return [scale]"))
    assert model.predict([1]) == [2]


HEAD = "from ringbatch.engine import Tensor\n"
BAD = {
    "syntax-error": (
        "def predict(x):\n    return x +\n",
        r"model\.py: line 2: invalid syntax",
    ),
    "null-byte": ("a = 1\0\n", r"model\.py: .*null byte"),
    "raises-at-import": (
        "import os\n\nnothing.there\n",
        r"model\.py: line 3: NameError: name 'nothing' is not defined",
    ),
    "raises-at-import-inside-a-call": (
        "def f():\n    return 1 / 0\n\nf()\n",
        r"model\.py: line 2: ZeroDivisionError: division by zero",
    ),
    "raises-without-a-text": (
        "raise RuntimeError\n",
        r"model\.py: line 1: RuntimeError$",
    ),
    "raises-with-a-text-of-several-lines": (
        "raise RuntimeError('no\\n  weights')\n",
        r"model\.py: line 1: RuntimeError: no weights$",
    ),
    "imports-an-absent-package": (
        "\nimport surely_not_installed_anywhere\n",
        r"model\.py: line 2: ModuleNotFoundError: No module named 'surely_not_installed_anywhere'",
    ),
    "imports-a-module-beside-it-with-a-dot": (
        "\nfrom .helper import f\n",
        r"model\.py: line 2: ImportError: attempted .* by its name alone, without a dot$",
    ),
    "ends-the-process": (
        "import sys\nsys.exit('no weights')\n",
        r"model\.py: line 2: SystemExit: no weights",
    ),
    "no-predict": ("x = 1\n", r"model\.py: `predict` is missing; a model file needs a function"),
    "empty": ("", r"`predict` is missing"),
    "predict-is-async": (
        "async def predict(x): return x\n",
        r"`predict` is an async function, but a worker calls it and awaits nothing; write def",
    ),
    "load-yields": (
        "def predict(x): return x\ndef load(): yield\n",
        r"`load` yields, but it must return",
    ),
    "predict-is-an-async-generator": (
        "async def predict(x): yield x\n",
        r"`predict` is an async generator, but a worker calls it and awaits nothing",
    ),
    "predict-of-a-class-is-async": (
        "class Model:\n    async def predict(self, x): return x\n",
        r"`predict` is an async function",
    ),
    "load-is-async": (
        "async def load(): pass\ndef predict(x): return x\n",
        r"`load` is an async function",
    ),
    "predict-is-no-function": ("predict = 3\n", r"`predict` is no function"),
    "class-without-predict": (
        "class Model:\n    def load(self): pass\n",
        r"`predict` is missing; .* or a class Model with a method predict",
    ),
    "class-whose-constructor-raises": (
        "class Model:\n    def __init__(self):\n        raise OSError('no weights')\n"
        "    def predict(self, x): pass\n",
        r"model\.py: line 3: Model\(\): OSError: no weights",
    ),
    "class-whose-constructor-wants-more": (
        "class Model:\n    def __init__(self, path): pass\n    def predict(self, x): pass\n",
        r"model\.py: Model\(\): TypeError: .*missing 1 required positional argument: 'path'",
    ),
    "load-is-no-function": (
        "load = 'weights.npz'\ndef predict(x): pass\n",
        r"`load` is a str, but it must be a function",
    ),
    "inputs-without-outputs": (
        HEAD + "inputs = [Tensor('x', 'FP32', [1])]\ndef predict(x): pass\n",
        r"`inputs` is there, so `outputs` must be as well",
    ),
    "outputs-without-inputs": (
        HEAD + "outputs = [Tensor('x', 'FP32', [1])]\ndef predict(x): pass\n",
        r"`outputs` is there, so `inputs` must be as well",
    ),
    "inputs-is-one-tensor": (
        HEAD + "inputs = Tensor('x', 'FP32', [1])\ndef predict(x): pass\n",
        r"`inputs` must be a list of ringbatch\.engine\.Tensor, found a Tensor",
    ),
    "inputs-holds-something-else": (
        HEAD + "inputs = [Tensor('x', 'FP32', [1]), 'y']\ndef predict(x): pass\n",
        r"`inputs` must be a list of ringbatch\.engine\.Tensor, found a list with a str",
    ),
    "inputs-is-a-text": (
        "inputs = ''\ndef predict(x): pass\n",
        r"`inputs` must be a list of ringbatch\.engine\.Tensor, found a str",
    ),
    "outputs-is-a-dict": (
        HEAD + "inputs = [Tensor('x', 'FP32', [1])]\noutputs = {}\ndef predict(x): pass\n",
        r"`outputs` must be a list of ringbatch\.engine\.Tensor, found a dict",
    ),
    "two-tensors-of-one-name": (
        HEAD + "inputs = [Tensor('x', 'FP32', [1]), Tensor('x', 'FP32', [2])]\n"
        "outputs = [Tensor('y', 'FP32', [1])]\ndef predict(a, b): pass\n",
        r"`inputs` has two tensors named 'x'",
    ),
    "unknown-datatype": (
        HEAD + "\ninputs = [Tensor('x', 'float32', [1])]\n",
        r"model\.py: line 3: ValueError: tensor 'x': unknown datatype 'float32', which is FP32 "
        "here; known are BOOL",
    ),
    "impossible-shape": (
        HEAD + "inputs = [Tensor('x', 'FP32', [-2])]\n",
        r"model\.py: line 2: ValueError: tensor 'x': a size in the shape .* not -2",
    ),
    "shape-is-a-number": (
        HEAD + "inputs = [Tensor('x', 'FP32', 16)]\n",
        r"line 2: ValueError: tensor 'x': the shape must be a list of sizes, not 16",
    ),
    "predict-takes-too-few": (
        HEAD + "inputs = [Tensor('a', 'FP32', []), Tensor('b', 'FP32', [])]\n"
        "outputs = [Tensor('y', 'FP32', [])]\ndef predict(a): pass\n",
        r"predict\(a\) must take 2 arguments \(a, b\)",
    ),
    "predict-wants-too-many": (
        "def predict(a, b): pass\n",
        r"predict\(a, b\) must take 1 argument \(instances\)",
    ),
    "method-without-self": (
        "class Model:\n    def predict(x): return x\n",
        r"predict\(x\) must take 1 argument \(instances\) behind self",
    ),
    "cost-takes-nothing": (
        "def predict(x): return x\ndef cost(): return 1\n",
        r"cost\(\) must take 1 argument \(instance\)",
    ),
    "cost-is-async": (
        "def predict(x): return x\nasync def cost(x): return 1\n",
        r"`cost` is an async function, but a worker calls it and awaits nothing",
    ),
    "method-without-an-input": (
        "class Model:\n    def predict(self): return 1\n",
        r"predict\(self\) must take 1 argument \(instances\) behind self",
    ),
    "method-without-any-argument": (
        "class Model:\n    def predict(): return 1\n",
        r"predict\(\) takes no argument, but a method of Model must take self",
    ),
    "load-without-self": (
        "class Model:\n    def load(): pass\n    def predict(self, x): return x\n",
        r"load\(\) takes no argument, but a method of Model must take self",
    ),
}


@pytest.mark.parametrize(("source", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_model_file_gets_its_words(tmp_path: Path, source: str, words: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(source)
    with pytest.raises(StartupError, match=words) as caught:
        import_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_another_suffix_is_refused_with_the_right_one(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text("def predict(x): return x\n")
    with pytest.raises(StartupError, match=r"model\.txt: a model file is a Python file .* \.py"):
        import_model(path)


def test_a_syntax_error_in_a_file_beside_it_names_that_file(tmp_model: WriteModel) -> None:
    tmp_model("x = = 1\n", name="broken_beside.py")
    with pytest.raises(StartupError, match=r"broken_beside\.py: line 1: invalid syntax"):
        import_model(tmp_model("import broken_beside\ndef predict(x): pass"))


def test_an_error_in_load_is_reported_with_its_line(tmp_model: WriteModel) -> None:
    path = tmp_model("def load():\n    open('/no/such/weights')\ndef predict(x): pass\n")
    model = import_model(path)
    with pytest.raises(FileNotFoundError) as caught:
        model.load()
    assert failure(path, caught.value, "load()") == (
        f"{path}: line 2: load(): FileNotFoundError: "
        "[Errno 2] No such file or directory: '/no/such/weights'"
    )


TENSORS = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [])]
outputs = [Tensor("y", "FP32", [])]
"""


@pytest.mark.parametrize(
    ("predict", "asks"),
    [
        ("def predict(x): return x", False),
        ("def predict(request): return request", False),
        ("def predict(x, request): return [x, request]", True),
        ("def predict(x, *, request): return [x, request]", True),
        ("def predict(x, request=None): return [x, request]", True),
        ("def predict(x, other=1, request=None): return [x, request]", True),
        (
            "class Model:\n    def predict(self, x, request): return [x, request]",
            True,
        ),
    ],
)
def test_a_predict_that_takes_request_beside_its_inputs_asks(
    tmp_model: WriteModel, predict: str, asks: bool
) -> None:
    own = "\n    inputs, outputs = inputs, outputs" if "class" in predict else ""
    model = import_model(tmp_model(TENSORS + predict + own))
    assert model.asks == asks
    assert model.predict(*([1, 2] if asks else [1])) == ([1, 2] if asks else 1)


def test_without_inputs_it_asks_likewise(tmp_model: WriteModel) -> None:
    model = import_model(tmp_model("def predict(instances, request): return request"))
    assert model.asks
    assert model.predict(["a"], ["told"]) == ["told"]


def test_a_load_with_a_device_parameter_gets_the_device(tmp_model: WriteModel) -> None:
    text = "def predict(x): return [where]\ndef load(device):\n    global where\n    where = device"
    model = import_model(tmp_model(text), device="cuda:1")
    model.load()
    assert model.predict([1]) == ["cuda:1"]
    model = import_model(tmp_model(text.replace("(device)", "(device='mine')")), device="cuda:1")
    model.load()
    assert model.predict([1]) == ["mine"], "it has its own"
    with pytest.raises(
        StartupError, match=r"load\(a, b\) must take no argument, or one, the device"
    ):
        import_model(tmp_model("def predict(x): return x\ndef load(a, b): pass"))


def test_headers_are_for_models_that_ask(tmp_model: WriteModel) -> None:
    options = Options(max_batch_size=1, threads=1, headers=("x-tenant",))
    assert open_python(tmp_model("def predict(x, request): return x"), options).asks
    with pytest.raises(StartupError, match="headers are configured, but predict does not ask"):
        open_python(tmp_model("def predict(x): return x"), options)
