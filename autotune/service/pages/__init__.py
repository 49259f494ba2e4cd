"""The HTML pages for browsers: rendered on the server, usable without script."""

from __future__ import annotations

from fastapi import FastAPI


def add_pages(app: FastAPI) -> None:
    """Adds the pages, static files and forms to the application."""
