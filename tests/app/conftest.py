import pytest

from latentuq.prior.model_file import save_prior


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_prior):
    """The file of the tiny prior."""
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_prior(path, tiny_prior)
    return str(path)
