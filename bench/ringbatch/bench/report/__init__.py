"""What was found, for programs, for terminals and for eyes: JSON, Markdown and one HTML page.

Enters: outcomes and what the engine said of itself. Leaves: text, and verdicts between two results.
Imports statistics, load and served. Read first: result.py.
"""
