"""The table of operations in docs/api.md, from the application: `python scripts/api_table.py`.

`--check` compares instead of writing; a test calls it, so that the page names every operation.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from backend.client import PREFIX
from backend.main import create_app
from backend.security.gate import needed_scope
from backend.settings import Settings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
BEGIN, END = "<!-- operations: scripts/api_table.py -->", "<!-- end -->"


def table() -> str:
    """One row per operation, in the order of the routes: scope, method and path, first sentence."""
    schema = create_app(Settings()).openapi()
    lines = ["| scope | operation | what |", "|---|---|---|"]
    for path, item in schema["paths"].items():
        concrete = re.sub(r"\{[^}]+\}", "1", path)
        for method, operation in item.items():
            said = " ".join(str(operation.get("description", "")).split())
            sentence = re.split(r"(?<=[.;]) ", said, maxsplit=1)[0].rstrip(".;:")
            scope = needed_scope(method.upper(), concrete)
            shown = path.removeprefix(PREFIX)
            lines.append(f"| {scope} | `{method.upper()} {shown}` | {sentence.replace('|', '/')} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """The page with the table as it should be. Errors: ValueError without its two marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    is_check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    wanted = with_table(text)
    if is_check:
        return 0 if text == wanted else 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
