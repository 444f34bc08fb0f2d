"""Candidates of the search. Pure."""

from collections.abc import Mapping

Values = Mapping[str, int | float | str]
"""Settings that are chosen together, as one factor."""
Candidate = Mapping[str, Values]
"""Choice by factor; settings that are left out stay as they are."""
