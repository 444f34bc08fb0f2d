"""The seam behind which model files differ: a path and options in, a `Model` out.

Enters: the file of a model. Leaves: `Model`: its signature and a function of arrays. worker and
supervisor import it; it imports config alone. Read first: model.py, opening.py, then python.py as
an example.
"""
