"""Sources of instances: what a row is asked to pack."""

from packing_env.generators.base import (
    Cuboids,
    Generator,
    GeneratorError,
    InfeasibleError,
    check_pool,
    make_pool,
    split_stream,
)
from packing_env.generators.catalogue_mix import CatalogueMix
from packing_env.generators.fixed_pool import FixedPool
from packing_env.generators.sequence_file import SequenceFile
from packing_env.generators.uniform import Uniform

GENERATORS: dict[str, type[Generator]] = {
    "uniform": Uniform,
    "catalogue_mix": CatalogueMix,
    "sequence_file": SequenceFile,
    "fixed_pool": FixedPool,
}

__all__ = [
    "GENERATORS",
    "CatalogueMix",
    "Cuboids",
    "FixedPool",
    "Generator",
    "GeneratorError",
    "InfeasibleError",
    "SequenceFile",
    "Uniform",
    "check_pool",
    "make_pool",
    "split_stream",
]
