"""The ray runtime: models in actors of a Ray cluster, each driven by a worker.

Enters: a model file and its place in the cluster. Leaves: a `Model` that runs there; a list of the
actors, as text. Read first: runtime.py, then actor.py.
"""
