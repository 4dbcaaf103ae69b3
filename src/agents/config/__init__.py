"""Configuration: composed from YAML by Hydra, checked before anything is built, then built."""
