"""docs/settings.md: the settings of the inference in each budget, in the words of their class."""

import dataclasses
import inspect
import math
import re
from typing import Any

from latentuq.inference.settings import BUDGETS, FAMILIAR_BUDGETS, Settings
from studies.pages import rows

_FAMILIES = {"any": BUDGETS, "image": FAMILIAR_BUDGETS}


def make_values() -> dict[str, str]:
    """What the template needs: what the budgets differ in, and what every setting is."""
    told = explanations()
    budgets = [
        {
            "name": name,
            **{
                f"{family}_{budget}": _shown(getattr(settings, name))
                for family, budgets in _FAMILIES.items()
                for budget, settings in budgets.items()
            },
        }
        for name in told
        if any(_differ(name, list(budgets.values())) for budgets in _FAMILIES.values())
    ]
    form = "`{name}` | {any_preview} | {any_default} | {any_thorough}"
    form += " | {image_preview} | {image_default} | {image_thorough}"
    defaults = [
        {
            "name": name,
            "text": text,
            **{
                family: _shown(getattr(budgets["default"], name))
                for family, budgets in _FAMILIES.items()
            },
        }
        for name, text in told.items()
    ]
    return {
        "budgets": rows(form, budgets),
        "settings": rows("`{name}` | {any} | {image} | {text}", defaults),
    }


def explanations() -> dict[str, str]:
    """What the docstring of `Settings` says of each of its fields, in one line."""
    entries = re.findall(
        r"^    (\w+): (.*?)(?=^    \w|\Z)", inspect.getdoc(Settings) or "", re.M | re.S
    )
    found = {name: " ".join(text.split()) for name, text in entries}
    return {field.name: found[field.name] for field in dataclasses.fields(Settings)}


def _differ(name: str, budgets: list[Settings]) -> bool:
    return len({getattr(settings, name) for settings in budgets}) > 1


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if math.isinf(value):
        return "none"
    if value >= 1e6:
        return f"{value / 1e6:g} million"
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"
