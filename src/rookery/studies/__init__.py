"""Runs from a description, comparisons of several, and the statistics of trials."""
