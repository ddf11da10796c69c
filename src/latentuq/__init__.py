"""Bayesian inverse problems with generative priors."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentuq.training import prior_from as prior_from

__version__ = "0.1.0"

# Public name -> module that defines it; imported on first use, so that `import latentuq` is light.
_PUBLIC = {
    "prior_from": "latentuq.training",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'latentuq' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
