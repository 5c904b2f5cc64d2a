"""Kernels forked from one warm process that has already imported what notebooks need and holds their models."""
