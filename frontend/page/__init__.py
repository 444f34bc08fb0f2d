"""The page at the control address: what the engine does, as it changes, for a browser.

Enters: samples of the segment, once a second. Leaves: HTML, scripts and styles as they lie in
assets, and a stream of events. metrics imports it. Read first: feed.py, which makes an event of two
samples; live.py, where they come from; assets/page.js shows them.
"""
