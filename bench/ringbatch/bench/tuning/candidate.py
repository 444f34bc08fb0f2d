"""Candidates of the search. Pure."""

from collections.abc import Mapping

Values = Mapping[str, int | float | str]
"""Settings that are chosen together, as one factor."""
Candidate = Mapping[str, Values]
"""What is chosen, by factor; of those that are left out the settings stay as they are."""
