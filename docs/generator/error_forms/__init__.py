"""Forms of error messages with cause and remedy; ``...`` stands for any text."""

from typing import Final

from generator.error_forms import engine, inputs, protocols
from generator.error_forms.form import Form, Group

__all__ = ["GROUPS", "Form", "Group"]

GROUPS: Final = (*protocols.GROUPS, *inputs.GROUPS, *engine.GROUPS)
