"""Runtimes: one for each kind of model file, from a path and options to a `Model`.

Enters: the file of a model. Leaves: a `Model`. The worker imports it. Runtimes for Python and
scikit-learn are here, the others in rooms of their own. Read first: opening.py, then python.py as
an example.
"""
