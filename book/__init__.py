"""The reading site: a small Sphinx extension that turns catalogue, notebooks, ledgers and audits into pages."""
