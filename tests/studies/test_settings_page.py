from studies.pages import RESULTS, fill_page
from studies.settings_page import explanations, make_values


def test_the_page_of_settings_says_what_they_are():
    page = (RESULTS.parent / "settings.md").read_text()
    assert page == fill_page("settings", make_values()), "run python -m studies settings"


def test_every_setting_is_explained():
    assert all(text.endswith(".") for text in explanations().values())
