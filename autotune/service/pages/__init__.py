"""The HTML pages for browsers: rendered on the server, usable without script."""
