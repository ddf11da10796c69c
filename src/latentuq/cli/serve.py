"""`latentuq serve`: the interactive page."""

from pathlib import Path
from typing import Annotated

import typer

from latentuq.core.errors import UserError


def serve(
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen to; one that other machines reach needs --token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = (
        8642
    ),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    token: Annotated[
        str | None,
        typer.Option(metavar="SECRET", help="What everybody who opens the page must know."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="The model that is chosen at first, and ready for the first stroke: an embedded"
            " one, or a model file, which joins the list.",
        ),
    ] = "mnist",
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="The number of processes that solve.")
    ] = 2,
) -> None:
    """Paint damage on a picture in the browser, and watch what it could have been."""
    try:
        from latentuq.web.desk import Settings
        from latentuq.web.guard import Access
        from latentuq.web.pool import Limits
        from latentuq.web.server import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("latentuq"):
            raise
        raise UserError(f"The page needs {error.name}: pip install latentuq[web].") from None
    from latentuq.prior.model_file import embedded_models, load_prior

    load_prior(model)  # A model that cannot be used is told at once.
    models = {name: name for name in embedded_models()}
    default = model
    if model not in models:
        default = Path(model).name
        models[default] = str(Path(model).expanduser().absolute())
    settings = Settings(models, default, Access(host, token), Limits(workers))

    def tell(address: str) -> None:
        typer.echo(f"The page is at {address} (Ctrl-C stops it).")
        if show:
            typer.launch(address)

    run(settings, port, tell)
    typer.echo("Stopped.")
