"""Pieces of a request's way, and the count of their instructions."""
