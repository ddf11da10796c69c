"""Frozen dataclasses as option tables: declared ranges, checked values, TOML in."""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from latentuq.core.errors import UserError
from latentuq.core.reading import decoding, existing_file

T = TypeVar("T")


def number(default: Any, low: float, high: float, help: str) -> Any:  # noqa: A002
    """A numeric field that must lie in [low, high]."""
    return dataclasses.field(default=default, metadata={"range": (low, high), "help": help})


def choice(default: str, values: Iterable[str], help: str) -> Any:  # noqa: A002
    """A field that must be one of the given words."""
    return dataclasses.field(default=default, metadata={"values": tuple(values), "help": help})


def check(options: Any, prefix: str = "") -> None:
    """Refuses the first value that is outside its declared range, tables within tables included."""
    for field in dataclasses.fields(options):
        name, value = prefix + field.name, getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            check(value, name + ".")
        if "values" in field.metadata and value not in field.metadata["values"]:
            raise UserError(
                f"{name} = {value!r} is not one of {', '.join(field.metadata['values'])}."
            )
        if "range" in field.metadata:
            low, high = field.metadata["range"]
            if not low <= value <= high:
                raise UserError(f"{name} = {value} is outside {low:g} to {high:g}.")


def read_toml(base: T, path: str | Path) -> T:
    """Replaces in `base` what a TOML file names."""
    path = existing_file(path)
    with decoding(path, "TOML"):
        return replace(base, tomllib.loads(path.read_text(encoding="utf-8")))


def replace(base: T, table: Any, prefix: str = "") -> T:
    """Replaces in `base` what a nested mapping names, refusing unknown names and wrong types."""
    if not isinstance(table, Mapping):
        raise UserError(f"{prefix.rstrip('.')} = {table!r} should be a table.")
    known = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}  # pyright: ignore[reportArgumentType]
    changes = {}
    for name, value in table.items():
        if name not in known:
            raise UserError(f"There is no option {prefix}{name}; there are {', '.join(known)}.")
        old = known[name]
        if dataclasses.is_dataclass(old):
            changes[name] = replace(old, value, f"{prefix}{name}.")
        else:
            changes[name] = _typed(prefix + name, value, type(old))
    changed = dataclasses.replace(base, **changes)  # pyright: ignore[reportArgumentType]
    check(changed, prefix)
    return changed


def listed(options: Any, prefix: str = "") -> dict[str, dataclasses.Field]:
    """Every field by its full name, such as `vae_fit.epochs`; its default is the value in use."""
    found = {}
    for field in dataclasses.fields(options):
        name, value = prefix + field.name, getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            found |= listed(value, name + ".")
        else:
            found[name] = dataclasses.field(default=value, metadata=field.metadata)
    return found


def read_assignments(base: Any, texts: Iterable[str]) -> dict[str, Any]:
    """Values of texts such as `vae_fit.epochs=3` by the names of the fields, typed as these are."""
    known, values = listed(base), {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign:
            raise UserError(f"{text!r} is not NAME=VALUE, such as {next(iter(known))}=1.")
        if name not in known:
            close = get_close_matches(name, known, 3, 0.5) or known
            raise UserError(f"There is no setting {name!r}; there are {', '.join(close)}.")
        kind = type(known[name].default)
        try:
            values[name] = kind(value)
        except ValueError:
            raise UserError(f"{name} = {value} should be of type {kind.__name__}.") from None
    return values


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turns {"fit.epochs": 3, "seed": None} into {"fit": {"epochs": 3}}: None is not given."""
    table: dict[str, Any] = {}
    for name, value in flat.items():
        if value is None:
            continue
        *parents, leaf = name.split(".")
        inner = table
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[leaf] = value
    return table


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise UserError(f"{name} = {value!r} should be of type {kind.__name__}.")
    return value
