"""Import of a model file as a module, with the content that all workers of its version have."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from ringbatch.engine.models.model import failure, refusing
from ringbatch.engine.runtimes.sibling_modules import disable_bytecode_cache
from ringbatch.shm.errors import StartupError


class _UncachedSource(SourceFileLoader):
    """Module loader that reads a source text, perhaps from another file, and no compiled cache.

    A cache is recognized by size and second of the last write alone (PEP 3147), which a replaced
    file can share with the new one.
    """

    def __init__(self, name: str, path: Path, content: Path) -> None:
        super().__init__(name, str(path))
        self._content = content

    def get_data(self, path: str) -> bytes:
        return self._content.read_bytes() if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        # Without these, importlib neither reads nor writes a compiled file.
        raise OSError(f"{path} is not looked at")


def import_file(path: Path, content: Path) -> Any:
    """Run a model file as a module, and return the module.

    Args:
        path: its present or former place, beside the modules that it imports.
        content: the file to read its text from.

    Raises:
        StartupError: it cannot be imported; the text says why, and at which line if there is one.
    """
    name = _module_name(path)
    loader = _UncachedSource(name, path, content) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise StartupError(f"{path}: a model file is a Python file and ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    disable_bytecode_cache(path.parent)
    with refusing(path):
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            # The line may be in a file that the model file imports.
            line = f"line {error.lineno}: " if error.lineno else ""
            raise StartupError(f"{error.filename or path}: {line}{error.msg}") from None
        except ImportError as error:
            if "no known parent package" not in str(error):
                raise
            raise StartupError(
                f"{failure(path, error)}; a model file imports what lies beside it by its name "
                "alone, without a dot"
            ) from None
    return module


def _module_name(path: Path) -> str:
    """Return the module name of a model file: its stem, or another name if that one is taken.

    Processes of a multiprocessing pool can import the stem from the file's folder.
    """
    name = path.stem
    taken = name in sys.modules or name in sys.stdlib_module_names
    return f"ringbatch_model_{name.replace('.', '_')}" if taken or "." in name else name
