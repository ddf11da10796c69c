"""The page on a survey."""

from latentuq.batch.store import Store


def write_page(store: Store) -> None:
    """Writes the page."""
