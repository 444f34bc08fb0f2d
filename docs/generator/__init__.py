"""Generators of the reference pages' tables.

Enters: definitions of the product. Leaves: Markdown between two marks of a page in
docs/reference. Read first: pages.py.
"""
