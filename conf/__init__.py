"""The configuration. It is a package, so that Hydra finds it as ``pkg://packing_env.conf``."""
