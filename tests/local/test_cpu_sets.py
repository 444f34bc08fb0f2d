"""The managed processes of workers, and what they hold."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringbatch.engine.config.settings import Config, ModelConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.supervisor.cpu_sets import CpuSets


@pytest.fixture
def rare_collector() -> Iterator[None]:
    """The supervisor's garbage collector looks so rarely that it may as well not look."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("rare_collector")
def test_a_slot_that_is_gone_keeps_no_copy_of_its_model_file(tmp_path: Path) -> None:
    """Each is up to 16 MiB of memory, or a larger file that was removed and still fills a disk."""
    path = tmp_path / "m.py"
    path.write_text("def predict(instances):\n    return instances\n")
    model = ModelConfig(name="m", runtime="python", path=path)
    cpu_sets = CpuSets(Config(models=(model,)))
    file = ModelFile(path)
    managed = cpu_sets.worker_process(0, model, 0, file)
    kept = weakref.ref(file)
    del file
    assert kept() is not None, "the managed process starts workers with it"
    del managed
    assert kept() is None
