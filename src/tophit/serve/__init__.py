"""Serving: an index over HTTP, with a page to search it. :func:`tophit.serve.run.serve` is the whole of it."""
