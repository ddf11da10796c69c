"""Just enough TOML writing for flat tables of numbers, text, lists and inline tables."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def format_value(value: Any) -> str:
    """One TOML value; float32 numbers are written with the fewest digits that read back alike."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        items = (f"{key} = {format_value(item)}" for key, item in value.items())
        return "{ " + ", ".join(items) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(format_value, value)) + "]"
    if isinstance(value, int | np.integer):
        return str(int(value))
    # A float must keep its point or exponent, or it would be read as an integer.
    return str(value if isinstance(value, np.floating) else float(value))


def format_table(table: Mapping[str, Any], header: str = "") -> str:
    """`[header]` or `[[header]]`, then one `key = value` per line."""
    lines = [header] if header else []
    return "\n".join(lines + [f"{key} = {format_value(value)}" for key, value in table.items()])
