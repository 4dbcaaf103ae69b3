"""Libraries of machine code that are linked into kernels and never run by themselves.

numba optimises every compiled function and generates its machine code. It then links the function
into its callers, and optimises and generates the result again. A function that only kernels call
does not need the first pass, which would take most of the compile time.
"""

from __future__ import annotations

import copy
from types import CodeType
from typing import Any

from numba.core import codegen, compiler

_OF_ARRAY_EXPRESSIONS = frozenset({"nopython_rewrites"})
_OF_INNER_FUNCTIONS = frozenset({"inline_closure_likes", "make_function_op_code_to_jit_function"})
"""Names of numba's passes that cost time but change nothing in these functions."""


class _Part(codegen.JITCodeLibrary):
    """The LLVM code of one function and of the functions that it calls."""

    def add_llvm_module(self, module: Any) -> None:
        """Add a function without optimising it, unlike numba's own method."""
        # Before linking, the function must have the data layout of the kernel.
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)

    def _optimize_final_module(self) -> None:
        """Do nothing: the kernel is optimised as a whole."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        self._ensure_finalized()
        return 0


class PartCompiler(compiler.CompilerBase):
    """The compiler of functions that only compiled code calls."""

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes, except for array expressions and inner functions."""
        code = self.state.func_id.code
        simple = not any(isinstance(constant, CodeType) for constant in code.co_consts)
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        skipped = _OF_ARRAY_EXPRESSIONS | (_OF_INNER_FUNCTIONS if simple else frozenset())
        passes.passes = [entry for entry in passes.passes if entry[0].name() not in skipped]
        passes.finalize()
        # Set the library here; otherwise the last pass would create one that is optimised.
        generator = copy.copy(self.state.targetctx.codegen())
        generator.set_env = lambda name, environment: None
        self.state.library = _Part(generator, self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        return [passes]
