"""Hookbook's helpers: one short module per noun; notebooks hold what explains a paper."""
