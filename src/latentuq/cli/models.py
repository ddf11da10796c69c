"""`latentuq models`: what comes with the package, and how good it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from latentuq.core.text import printable, show_size


def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects.")] = False,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Model files to describe instead.")
    ] = None,
) -> None:
    """List the embedded models with their metrics."""
    from latentuq.prior.model_file import embedded_models

    cards = [summary(path) for path in (files or embedded_models().values())]
    if as_json:
        typer.echo(json.dumps(cards, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    columns = {
        "name": "model",
        "shape": "image",
        "dim": "dim",
        "test_elbo": "test ELBO",
        "test_rms": "test rms",
        "sigma_model": "sigma",
        "gaussian_nll": "NLL N(0, I)",
        "flow_nll": "NLL flow",
        "latent_c2st_before": "C2ST before",
        "latent_c2st_after": "after",
        "train_seconds": "trained in",
        "check": "checked",
    }
    for key, title in columns.items():
        table.add_column(title, justify="left" if key in ("name", "shape") else "right")
    for card in cards:
        table.add_row(*[format_value(key, card.get(key)) for key in columns])
    # A stranger's name is text, not markup.
    console = Console(markup=False, emoji=False)
    console.print(table if console.width >= 110 else _stacked(cards, columns))


def summary(path: Path) -> dict[str, Any]:
    """One flat object per model: identity first, then every metric."""
    from latentuq.prior.model_file import read_card

    header = read_card(path)
    architecture = header["architecture"]
    return {
        "name": header["name"],
        "shape": architecture["shape"],
        "dim": architecture["vae"]["latent"],
        "bytes": path.stat().st_size,
        "check": header.get("check", {}).get("word"),
        **header["metrics"],
    }


def print_metrics(name: str, metrics: Mapping[str, Any]) -> None:
    """Prints a model's metrics, one per line."""
    typer.echo(printable(name))
    for key, value in metrics.items():
        if not isinstance(value, dict):
            typer.echo(f"  {printable(key):22s} {format_value(key, value)}")


def format_value(key: str, value: Any) -> str:
    """A metric as people read it."""
    if value is None:
        return "-"
    if key == "shape" and isinstance(value, list):
        return show_size(value)
    if key == "train_seconds" and isinstance(value, float):
        return f"{value / 60:.1f} min"
    if isinstance(value, float):
        return f"{value:.1f}" if "elbo" in key and abs(value) >= 1 else f"{value:.3f}"
    return printable(str(value))


def _stacked(cards: list[dict[str, Any]], columns: Mapping[str, str]) -> str:
    blocks = []
    for card in cards:
        lines = [f"  {columns[key]:12s} {format_value(key, card.get(key))}" for key in columns]
        blocks.append("\n".join([printable(card["name"]), *lines[1:]]))
    return "\n".join(blocks)
