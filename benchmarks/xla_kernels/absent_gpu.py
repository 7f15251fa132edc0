"""Compiles TensorFlow functions for a GPU that the machine lacks.

TensorFlow and JAX have the same compiler, XLA, and that of JAX's plugin for CUDA also
compiles for a card that is only described. So TensorFlow writes a function as
StableHLO, and JAX compiles it.
"""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from t2t_keras.devices import XLA_FLAGS
from t2t_keras.errors import UserError
from xla_kernels.kernel_costs import Rates

if TYPE_CHECKING:
    import jax
    from jax.interpreters import mlir

# What kernels sustain of the published rates. See docs/gpu.md: the estimates were held
# against measurements on an H100.
_MEMORY_SHARE = 0.75
_PRODUCTS_SHARE = 0.71
_LANES_SHARE = 0.9
_START = 2.2e-6  # seconds from one kernel to the next

_DTYPES = {
    **{"i1": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32"},
    **{"i32": "int32", "i64": "int64", "ui32": "uint32", "ui64": "uint64"},
}


class Card(NamedTuple):
    """Published peak rates of a GPU.

    Attributes:
        float32: dense float32 matrix products, in 10^12 FLOPs a second; with TF32 if
            the GPU has it, as TensorFlow uses it by default.
        half: the same for bfloat16, or for float16 if the GPU lacks bfloat16.
        memory: memory bandwidth, in 10^12 bytes a second.
        link: bandwidth to other GPUs in each direction, in 10^9 bytes a second.
    """

    float32: float
    half: float
    memory: float
    link: float


# The data sheets' rates of the SXM2, SXM4 and SXM5 modules, without sparsity.
CARDS = {
    "V100": Card(15.7, 125, 0.9, 150),
    "A100": Card(156, 312, 1.555, 300),
    "H100": Card(495, 989, 3.35, 450),
    "H200": Card(495, 989, 4.8, 450),
}


class _Chip(NamedTuple):
    """What XLA asks about a GPU besides the rates of `CARDS`."""

    cores: int
    lanes: int  # float32 lanes of a core
    gigahertz: float
    cache_bytes: int  # of level 2
    shared_bytes: int  # shared memory of a core
    memory_bytes: int
    capability: str


_HOPPER = "major: 9 feature_extension: ACCELERATED_FEATURES"
_CHIPS = {
    "A100": _Chip(108, 64, 1.41, 41_943_040, 167_936, 42_505_273_344, "major: 8"),
    "H100": _Chip(132, 128, 1.98, 52_428_800, 233_472, 84_978_434_048, _HOPPER),
    "H200": _Chip(132, 128, 1.98, 52_428_800, 233_472, 150_000_000_000, _HOPPER),
}
CHOICES = tuple(name for name in _CHIPS if name in CARDS)

_DESCRIPTION = """\
platform_name: "CUDA"
device_description_str: "{name}"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 12 minor: 9 }}
gpu_device_info {{
  cuda_compute_capability {{ {chip.capability} }}
  core_count: {chip.cores}
  fpus_per_core: {chip.lanes}
  clock_rate_ghz: {chip.gigahertz}
  memory_bandwidth: {bandwidth:.0f}
  device_memory_size: {chip.memory_bytes}
  l2_cache_size: {chip.cache_bytes}
  shared_memory_per_core: {chip.shared_bytes}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {optin}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
"""


def rates(card: str) -> Rates:
    """Returns what one of `CHOICES` sustains."""
    chip = _CHIPS[card]
    published = CARDS[card]
    return Rates(
        memory=_MEMORY_SHARE * published.memory * 1e12,
        products=_PRODUCTS_SHARE * published.half * 1e12,
        float32_products=_PRODUCTS_SHARE * published.float32 * 1e12,
        lanes=_LANES_SHARE * chip.cores * chip.lanes * chip.gigahertz * 1e9,
        start=_START,
    )


class Compiler:
    """Compiles functions for a card.

    Args:
        card: one of `CHOICES`.

    Raises:
        UserError: JAX's plugin for CUDA is missing.
    """

    def __init__(self, card: str) -> None:
        _prepare_plugin()
        import jax
        from jax.experimental import topologies

        jax.config.update("jax_enable_x64", True)
        chip = _CHIPS[card]
        description = _DESCRIPTION.format(
            name=card,
            chip=chip,
            bandwidth=CARDS[card].memory * 1e12,
            optin=chip.shared_bytes - 1024,  # The driver has the rest.
        )
        topology = topologies.get_topology_desc(
            "", platform="cuda", target_config=description, topology="1x1x1"
        )
        self._sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])

    def compile(
        self,
        function: tf.types.experimental.GenericFunction,
        *args: object,
        is_deterministic: bool = False,
    ) -> "jax.stages.Compiled":
        """Returns what XLA makes of a function.

        Args:
            function: a `tf.function` with `jit_compile=True`. It may read and update
                variables.
            *args: its arguments, with a `tf.TensorSpec` in place of each tensor.
            is_deterministic: whether kernels are deterministic, as in `t2t train`.
        """
        import jax

        # It refuses nested specifications.
        zeros = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), args)
        write_ir = function.experimental_get_compiler_ir(*zeros)
        # TensorFlow writes the same for all platforms. If one is named, it refuses
        # functions with variables.
        step = _jax_function(write_ir(stage="stablehlo_serialized"))
        shapes = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._sharding)
            for x in step.parameters
        ]
        jitted = jax.jit(step.call, keep_unused=True, donate_argnums=step.overwritten)
        lowered = jitted.trace(*shapes)
        options = {**XLA_FLAGS, "xla_gpu_deterministic_ops": is_deterministic}
        return lowered.lower(lowering_platforms=("cuda",)).compile(
            compiler_options=options
        )


def _prepare_plugin() -> None:
    """Lets the plugin load without a driver, and find its assembler.

    Raises:
        UserError: the plugin or the assembler is missing.
    """
    assembler = _assembler()
    if importlib.util.find_spec("jax_cuda12_plugin") is None or assembler is None:
        raise UserError(
            "JAX's compiler for GPUs is missing; pip install jax-cuda12-plugin "
            "jax-cuda12-pjrt nvidia-cuda-nvcc-cu12, the first two in jaxlib's version"
        )
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    os.environ["PATH"] = f"{assembler.parent}{os.pathsep}{os.environ['PATH']}"


def _assembler() -> Path | None:
    """Returns the path of `ptxas` among NVIDIA's packages."""
    package = importlib.util.find_spec("nvidia")
    folders = package.submodule_search_locations if package else []
    paths = [Path(folder) / "cuda_nvcc" / "bin" / "ptxas" for folder in folders]
    return next(filter(Path.exists, paths), None)


class _JaxFunction(NamedTuple):
    """A function of JAX.

    Attributes:
        call: the function.
        parameters: the shapes of its arguments.
        overwritten: the numbers of the arguments that results may overwrite, as new
            values of variables do.
    """

    call: Callable
    parameters: "list[jax.core.ShapedArray]"
    overwritten: list[int]


def _jax_function(stablehlo: bytes) -> _JaxFunction:
    """Returns a function of JAX that calls the main function of a module."""
    from jax.extend.core import Primitive
    from jax.extend.mlir.dialects import func
    from jax.interpreters import mlir

    with mlir.make_ir_context():
        module = _parsed(stablehlo).operation
        main = mlir.ir.SymbolTable(module)["main"]
        aliases = module.attributes["mhlo.input_output_alias"]
        overwritten = [x["alias"]["parameter_number"].value for x in aliases]
        parameters = [_shape(x) for x in main.type.inputs]
        results = [_shape(x) for x in main.type.results]

    def lower(context: "mlir.LoweringRuleContext", *operands: "mlir.ir.Value"):
        module = context.module_context
        name = mlir.merge_mlir_modules(
            module.module, "step", _parsed(stablehlo), dst_symtab=module.symbol_table
        )
        types = [mlir.aval_to_ir_type(module, x) for x in results]
        return func.CallOp(types, mlir.ir.FlatSymbolRefAttr.get(name), operands).results

    primitive = Primitive("tensorflow")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *_: results)
    mlir.register_lowering(primitive, lower)
    return _JaxFunction(primitive.bind, parameters, overwritten)


def _parsed(stablehlo: bytes) -> "mlir.ir.Module":
    """Returns the module without TensorFlow's copies of variables.

    JAX knows no such operation, and XLA would remove them.
    """
    from jax.extend.mlir import ir

    copies = []

    def find(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "mhlo.copy":
            copies.append(operation)
        return ir.WalkResult.ADVANCE

    module = ir.Module.parse(stablehlo)
    module.operation.walk(find)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()
    return module


def _shape(array_type: "mlir.ir.Type") -> "jax.core.ShapedArray":
    """Returns the shape and dtype of an array."""
    from jax import numpy as jnp
    from jax.core import ShapedArray
    from jax.extend.mlir import ir

    ranked = ir.RankedTensorType(array_type)
    return ShapedArray(
        tuple(ranked.shape), jnp.dtype(_DTYPES[str(ranked.element_type)])
    )
