"""The torch runtime: exported programs and TorchScript.

Enters: the file of a program. Leaves: a `Model`. Read first: runtime.py, then program.py.
"""
