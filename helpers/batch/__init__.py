"""Runs of notebooks: validated before they start, recorded truthfully, kept where nothing overwrites them."""
