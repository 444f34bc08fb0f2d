"""Writes the generated blocks of the reference pages: `python docs/generate.py [--check]`."""

import argparse
import sys

from generator.pages import PAGES, rewritten


def main() -> int:
    """Rewrite all pages, or with --check compare them; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    changed = [page for page in PAGES if rewritten(page.read_text()) != page.read_text()]
    for page in changed:
        print(f"{page}: {'differs from the code' if check else 'rewritten'}")
        if not check:
            page.write_text(rewritten(page.read_text()))
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
