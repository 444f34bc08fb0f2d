"""Reports of a measurement: JSON for programs, Markdown for terminals, and one HTML page.

Enters: outcomes and the engine's metrics. Leaves: text, and verdicts between two results.
Imports statistics, load and served. Read first: result.py.
"""
