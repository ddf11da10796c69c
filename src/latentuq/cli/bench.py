"""`latentuq bench`: our inference beside the others."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from latentuq.cli.seeds import seed_option


def bench(
    methods: Annotated[
        str, typer.Option(help="Names, separated by commas; 'all' includes the slow ones.")
    ] = "",
    corruptions: Annotated[str, typer.Option(help="Names, separated by commas.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="Of each method; slow ones have fewer.")] = 3,
    references: Annotated[
        Path, typer.Option(help="Ground truth, from benchmarks/references.py.")
    ] = Path("docs/results/references.safetensors"),
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of bench.json and bench.md.")
    ] = Path("latentuq-bench"),
    model: Annotated[str, typer.Option(help="Embedded model or model file.")] = "mnist",
    seed: Annotated[int, seed_option("Of the first repeat.")] = 0,
    scaling: Annotated[
        bool, typer.Option(help="Also measure the cost against dimension, image size and starts.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the cells as JSON.")] = False,
) -> None:
    """Compare methods on the paper's four problems; what has been measured is not repeated."""
    from latentuq.core.cells import commit
    from latentuq.core.files import make_folder
    from latentuq.prior.model_file import load_prior
    from latentuq.problem.experiments import EXPERIMENTS
    from studies.bench.methods import METHODS
    from studies.bench.page import write_page
    from studies.bench.references import MODEL_ERROR, read_references
    from studies.bench.run import check_names, run_bench, write_cells
    from studies.bench.scaling import measure_scaling

    chosen = [name for name, method in METHODS.items() if methods == "all" or not method.slow]
    if methods not in ("", "all"):
        chosen = [name.strip() for name in methods.split(",")]
    problems = [name.strip() for name in corruptions.split(",")] if corruptions else [*EXPERIMENTS]
    check_names(chosen, problems)
    prior = load_prior(model)
    truth = read_references(references, prior)
    make_folder(output)

    def report(name: str, cell: dict) -> None:
        seconds = f"{cell['seconds']:.2f} s" if "seconds" in cell else cell["error"]
        typer.echo(f"{name}: {seconds}", err=True)

    path = output / "bench.json"
    cells = run_bench(prior, truth, path, chosen, problems, repeats, seed, report)
    setup = json.loads(path.read_text())["setup"]
    if scaling:

        def save(name: str, cell: dict) -> None:
            cells[name] = cell | {"commit": commit()}
            write_cells(path, setup, cells)
            typer.echo(f"{name}: {cell}", err=True)

        measure_scaling(prior.with_model_error(MODEL_ERROR), cells, save)
    page = write_page(cells, setup, output, " ".join(["latentuq", *sys.argv[1:]]))
    typer.echo(json.dumps(cells) if as_json else f"The comparison is in {page}")
