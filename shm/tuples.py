"""Unchecked construction of named tuples, for code that runs with every request.

`unchecked_tuple(Kind, (first, second))` is `Kind(first, second)` in a half to a third of the time;
the number of values is not checked.
"""

from typing import Final

unchecked_tuple: Final = tuple.__new__
