"""Diagnosis of runs that broke."""
