"""The text runtime: a tokenizer and an encoder in one directory.

Enters: a directory as transformers or sentence-transformers write it. Leaves: a `Model` that takes
tokens. Read first: runtime.py, then directory.py.
"""
