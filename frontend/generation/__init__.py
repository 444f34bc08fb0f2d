"""Texts that models in steps generate, and bodies and answers of OpenAI's completions.

Enters: bodies with a prompt or the messages of a chat; tokens, as the model makes them. Leaves:
parts of tokens for slots; answers and events. Imports codec and texts. Read first:
text_generator.py, then completion_writer.py.
"""
