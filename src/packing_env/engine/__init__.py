"""Carries out a step: chosen once per environment, at build."""
