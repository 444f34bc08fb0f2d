"""Texts to tokens, before anything goes into a slot; bodies of OpenAI's, TEI's and Cohere's routes.

Enters: the parts of a request as a protocol reads them, elements of BYTES; bodies of these
routes. Leaves: parts of tokens, formed by length, and the way back to the client's order; answers
of these routes. Imports codec. Read first: tokenizing.py, then rows.py.
"""
