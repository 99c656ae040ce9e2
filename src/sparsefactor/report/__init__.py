"""Reports as single HTML pages that need no network."""

from .page import render as render
from .page import write_page as write_page
from .posterior import posterior_page as posterior_page

__all__ = ["posterior_page", "render", "write_page"]
