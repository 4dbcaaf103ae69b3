"""Generators: sources of instances, which are the sequences of items that episodes pack."""

from packing_env.generators.base import (
    Cuboids,
    Generator,
    GeneratorError,
    InfeasibleError,
    make_pool,
)
from packing_env.generators.catalogue_mix import CatalogueMix, Uniform
from packing_env.generators.cuboids.continuous import ContinuousCuboids
from packing_env.generators.cuboids.guillotine import Guillotine
from packing_env.generators.cuboids.sequences import CuboidSequences
from packing_env.generators.cuboids.source import CuboidSource
from packing_env.generators.cuboids.uniform import UniformCuboids
from packing_env.generators.fixed_pool import FixedPool
from packing_env.generators.futures import Futures
from packing_env.generators.sequence_file import SequenceFile

GENERATORS: dict[str, type[Generator]] = {
    "uniform": Uniform,
    "catalogue_mix": CatalogueMix,
    "sequence_file": SequenceFile,
    "fixed_pool": FixedPool,
    "uniform_cuboids": UniformCuboids,
    "guillotine": Guillotine,
    "continuous_cuboids": ContinuousCuboids,
    "cuboid_sequences": CuboidSequences,
}

__all__ = [
    "GENERATORS",
    "CatalogueMix",
    "ContinuousCuboids",
    "CuboidSequences",
    "CuboidSource",
    "Cuboids",
    "FixedPool",
    "Futures",
    "Generator",
    "GeneratorError",
    "Guillotine",
    "InfeasibleError",
    "SequenceFile",
    "Uniform",
    "UniformCuboids",
    "make_pool",
]
