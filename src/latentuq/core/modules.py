"""Immutable modules of equinox."""

import dataclasses
from typing import Any, TypeVar

import equinox as eqx

Module = TypeVar("Module", bound=eqx.Module)


def with_fields(module: Module, **changes: Any) -> Module:
    """`dataclasses.replace` that skips `__init__`, whose checks cannot read traced values."""
    copy = object.__new__(type(module))
    for field in dataclasses.fields(module):  # pyright: ignore[reportArgumentType]
        value = changes[field.name] if field.name in changes else getattr(module, field.name)
        object.__setattr__(copy, field.name, value)
    return copy
