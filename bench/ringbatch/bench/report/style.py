"""The colours of charts, light and dark, wherever they are shown. Pure."""

from typing import Final

from ringbatch.bench.report.svg import COLOURS

_SCHEMES: Final = """
:root { color-scheme: light dark; --back: #fbfaf8; --card: #fff; --text: #1d2328; --soft: #5c6670;
  --rule: #d9dde0; --alarm: #a8231c; --c0: #1f6fb2; --c1: #c2571a; --c2: #2c7d4f; --c3: #8a4fa3;
  --c4: #9a7a12; --c5: #0e7c86; --c6: #b03060; --c7: #5f6b76; }
@media (prefers-color-scheme: dark) { :root { --back: #14181b; --card: #1c2226; --text: #e6eaed;
  --soft: #9aa6af; --rule: #343d44; --alarm: #ff8a80; --c0: #6db3f2; --c1: #f0995c; --c2: #6cc48f;
  --c3: #c79ae0; --c4: #d9bb55; --c5: #58c4cf; --c6: #f080a8; --c7: #a3b0bb; } }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .axis { fill: var(--text); } svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .limit, svg .knee { stroke: var(--alarm); stroke-dasharray: 5 4; }
svg text.limit, svg text.knee { fill: var(--alarm); stroke: none; }
svg polyline { fill: none; stroke-width: 2; }
"""
CHARTS: Final = _SCHEMES + "".join(
    f"svg polyline.c{n} {{ stroke: var(--c{n}); }} svg circle.c{n}, svg rect.c{n} "
    f"{{ fill: var(--c{n}); }}\n"
    for n in range(COLOURS)
)
"""CSS of charts as `svg` draws them; a page, and a picture alone, put their own after it."""
