"""Optional packages, and what to say where they are missing."""

import importlib.util

from latentuq.core.errors import UserError


def require_blackjax(method: str) -> None:
    """Refuses a method that runs on blackjax where that is not installed."""
    if importlib.util.find_spec("blackjax") is None:
        raise UserError(
            f"{method} needs blackjax: install it with `pip install latentuq[baselines]`."
        )
