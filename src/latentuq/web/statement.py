"""One reconstruction as the page states it: what is solved, and the same as files and commands."""

import dataclasses
import io
import shlex
import zipfile
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from latentuq.core.toml_text import format_table
from latentuq.problem.specification import FORMAT, Specification

IMAGE, MASK, PROBLEM = "image.npy", "mask.npy", "problem.toml"
_PYTHON = """\
import jax
import latentuq as lu
from latentuq.app.solving import Given, Solver
from latentuq.problem.specification import Specification

solver = Solver(lu.load_prior({model!r}), Specification.read("{problem}"), corrupt={corrupt})
post = solver.solve(jax.random.key({seed}), Given("{image}")).posterior
print(post.summary())
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Statement:
    """What is to be solved.

    Attributes:
        model: The name of the prior, or its file.
        image: The picture on the scale of [0, 1]; NaN where it is missing.
        mask: Which data are observed; None if all are.
        noise: The standard deviation of the noise, as a share of white.
        blur: The standard deviation of a Gaussian blur in pixels; 0 for none.
        corrupt: Whether the picture is clean: then it is corrupted first.
        seed: The seed of everything random.
    """

    model: str
    image: Float[np.ndarray, "height width"]
    mask: Bool[np.ndarray, "height width"] | None = None
    noise: float = 0.1
    blur: float = 0.0
    corrupt: bool = True
    seed: int = 0

    @property
    def specification(self) -> Specification:
        """What happened to the clean image."""
        return Specification.from_dict(
            {"operator": self._operators(self.mask), "noise": {"std": self.noise}}
        )

    @property
    def files(self) -> dict[str, bytes]:
        """The files that command and program name."""
        operators = self._operators(MASK)
        tables = [format_table({"format": FORMAT, "prior": self.model})]
        tables += [format_table(table, "[[operator]]") for table in operators]
        tables += [format_table({"std": self.noise}, "[noise]")]
        files = {PROBLEM: ("\n\n".join(tables) + "\n").encode(), IMAGE: _as_npy(self.image)}
        return files if self.mask is None else files | {MASK: _as_npy(self.mask)}

    @property
    def command(self) -> str:
        """The command that does the same, in the folder of `files`."""
        corrupt = ["--corrupt"] * self.corrupt
        words = [IMAGE, "--problem", PROBLEM, *corrupt, "--seed", str(self.seed), "-o", "report"]
        return shlex.join(["latentuq", "reconstruct", *words])

    @property
    def program(self) -> str:
        """The Python program that does the same, in the folder of `files`."""
        return _PYTHON.format(
            model=self.model, problem=PROBLEM, image=IMAGE, corrupt=self.corrupt, seed=self.seed
        )

    def _operators(self, mask: Any) -> list[dict[str, Any]]:
        blur = [{"kind": "blur", "sigma": self.blur}] if self.blur else []
        hiding = [] if self.mask is None else [{"kind": "mask", "mask": mask}]
        return [*blur, *hiding] or [{"kind": "gain", "gain": 1.0}]


def zipped(files: dict[str, bytes]) -> bytes:
    """Files as one archive; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _as_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
