"""Names whose module is imported when they are first called.

Every process of a run collects every test file, and a library that takes half a second to import
takes it in each of them; one or two run the tests that need it.
"""

from importlib import import_module
from typing import Any


class Late:
    """A function or class of a module that takes long to import.

    Args:
        module: with its package.
        name: in the module.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the module's own function or class."""
        return self.real(*arguments, **named)

    @property
    def real(self) -> Any:
        """The function or class itself."""
        return getattr(import_module(self._module), self._name)
