"""README: its output is what its code prints, its links lead somewhere, and it is short."""

import re

from tests.helpers.readme import BLOCK, PICTURE, README, ROOT, executed

TEXT = README.read_text()


def test_the_output_is_what_the_code_prints(tmp_path) -> None:
    """After a change of defaults: python tests/helpers/readme.py."""
    assert len(BLOCK.findall(TEXT)) == TEXT.count("```python\n") == 2
    assert executed(TEXT, tmp_path) == TEXT
    assert (tmp_path / "loadings.png").read_bytes().startswith(b"\x89PNG")
    assert PICTURE.read_bytes().startswith(b"\x89PNG")


def test_other_output_is_noticed(tmp_path) -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    assert executed(page, tmp_path) == page.replace("3", "2")


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) > 5
    assert [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()] == []


def test_it_is_at_most_a_screen_and_a_half() -> None:
    assert len(TEXT.splitlines()) <= 110


def test_the_set_up_commands_are_targets_of_the_makefile() -> None:
    targets = (ROOT / "Makefile").read_text()
    for name in ("demo", "test", "docs"):
        assert f"make {name}" in TEXT
        assert re.search(rf"^{name}:", targets, re.MULTILINE)
