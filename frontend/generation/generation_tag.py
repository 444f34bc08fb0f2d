"""Jinja's tag `generation`, which marks the texts of a model for its training.

Here it does nothing. Only a process that has Jinja imports this module.
"""

from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser


class GenerationTag(Extension):
    """The tag, as transformers has it: ``{% generation %}text{% endgeneration %}``."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[Node]:
        """Return what stands between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
