"""Texts to tokens, before anything goes into a slot; bodies of OpenAI's embeddings and of reranks.

Enters: the parts of a request as a protocol reads them, elements of BYTES; bodies of the two
routes. Leaves: parts of tokens, formed by length, and the way back to the client's order; answers
of the two routes. Imports codec. Read first: tokenizing.py, then rows.py.
"""
