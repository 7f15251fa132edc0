"""Kernels of XLA for a GPU; see `benchmarks/gpu_kernels.py`."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_keras.errors import UserError

FOLDER = Path(__file__).parents[2] / "benchmarks"

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="JAX's plugin for CUDA is not installed",
)


@pytest.fixture(autouse=True)
def _as_a_script_has_it(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


def kernels_of(entry: str, computations: str = "") -> list:
    """The kernels of a module; `entry` has the lines of its entry."""
    from xla_kernels.kernel_costs import kernels
    from xla_kernels.optimized_hlo import read_module

    text = (
        f"HloModule m\n{computations}\nENTRY %main (a: f32[]) -> f32[] {{\n{entry}\n}}"
    )
    return list(kernels(read_module(text)))


def fusion(parameters: str, body: str, result: str) -> list:
    """The kernels of one fusion."""
    lines = []
    names = []
    for index, shape in enumerate(parameters.split()):
        lines.append(f"  %p{index} = {shape} parameter({index})")
        names.append(f"%p{index}")
    fused = "\n".join([*lines, *(f"  {line}" for line in body.splitlines())])
    call = f"{result} fusion({', '.join(names)}), kind=kLoop, calls=%fused"
    metadata = 'metadata={op_name="jit(step)/tensorflow/layer/Add"}'
    return kernels_of(
        "\n".join([*lines, f"  ROOT %f = {call}, {metadata}"]),
        f"%fused (p: f32[]) -> f32[] {{\n{fused}\n}}",
    )


@pytest.mark.parametrize(
    ("parameters", "body", "result", "num_bytes"),
    [
        pytest.param(
            "f32[8,100]{1,0} f32[8,100]{1,0}",
            "ROOT %a = f32[8,100]{1,0} add(%p0, %p1)",
            "f32[8,100]{1,0}",
            3 * 3200,
            id="all elements",
        ),
        pytest.param(
            "f32[8,100]{1,0}",
            "%t = f32[100,8]{1,0} transpose(%p0), dimensions={1,0}\n"
            "%c = bf16[100,8]{1,0} convert(%t)\n"
            "%b = bf16[800]{0} bitcast(%c)\n"
            "ROOT %s = bf16[80]{0} slice(%b), slice={[160:240]}",
            "bf16[80]{0}",
            80 * 4 + 80 * 2,
            id="a slice of a transposed array",
        ),
        pytest.param(
            "f32[1000,16]{1,0} s32[5]{0}",
            "ROOT %g = f32[5,16]{1,0} gather(%p0, %p1), offset_dims={1}",
            "f32[5,16]{1,0}",
            5 * 4 + 2 * 5 * 16 * 4,
            id="gathered rows",
        ),
        pytest.param(
            "f32[64,32]{1,0} f32[1,32]{1,0} s32[]",
            "%z = s32[] constant(0)\n"
            "%u = f32[64,32]{1,0} dynamic-update-slice(%p0, %p1, %p2, %z)\n"
            "ROOT %b = f32[64,32,1]{2,1,0} bitcast(%u)",
            "f32[64,32,1]{2,1,0}",
            2 * 32 * 4 + 4,
            id="an update in place",
        ),
        pytest.param(
            "f32[64,32]{1,0} f32[1,32]{1,0} s32[]",
            "%n = f32[64,32]{1,0} negate(%p0)\n"
            "%z = s32[] constant(0)\n"
            "ROOT %u = f32[64,32]{1,0} dynamic-update-slice(%n, %p1, %p2, %z)",
            "f32[64,32]{1,0}",
            63 * 32 * 4 + 32 * 4 + 4 + 64 * 32 * 4,
            id="an update of a new array",
        ),
        pytest.param(
            "bf16[6,10]{1,0} bf16[6]{0}",
            "%b = bf16[6,10]{1,0} broadcast(%p1), dimensions={0}\n"
            "%m = bf16[6,10]{1,0} multiply(%p0, %b)\n"
            "ROOT %t = (bf16[6,10]{1,0}, /*index=1*/bf16[6,10]{1,0}) tuple(%m, %b)",
            "(bf16[6,10]{1,0}, bf16[6,10]{1,0})",
            3 * 120 + 12,
            id="two results",
        ),
    ],
)
def test_bytes_are_those_that_a_fusion_touches(parameters, body, result, num_bytes):
    (kernel,) = fusion(parameters, body, result)
    assert kernel.num_bytes == pytest.approx(num_bytes)
    assert kernel.operation == "layer/Add"


def test_lanes_compute_what_is_needed():
    body = (
        "%e = f32[100]{0} exponential(%p0)\n"
        "%a = f32[100]{0} add(%e, %p0)\n"
        "ROOT %s = f32[10]{0} slice(%a), slice={[0:10]}"
    )
    (kernel,) = fusion("f32[100]{0}", body, "f32[10]{0}")
    assert kernel.cycles == pytest.approx(10 * (8 + 1))


def test_products_have_flops_and_no_workspace():
    (kernel,) = kernels_of(
        "  %a = bf16[4,8,16]{2,1,0} parameter(0)\n"
        "  %b = bf16[4,16,32]{2,1,0} parameter(1)\n"
        "  ROOT %c = (bf16[4,8,32]{2,1,0}, s8[4096]{0}) custom-call(%a, %b), "
        'custom_call_target="__cublas$lt$matmul", backend_config={"gemm":'
        '{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"]}}}'
    )
    assert kernel.category == "product"
    assert kernel.flops == 2 * 4 * 8 * 32 * 16
    assert kernel.num_bytes == 2 * 4 * (8 * 16 + 16 * 32 + 8 * 32)


LOOPS = """\
%cond (s: (s32[], f32[9,5])) -> pred[] {
  %s = (s32[], f32[9,5]{1,0}) parameter(0)
  ROOT %done = pred[] constant(false)
}
%body (s: (s32[], f32[9,5])) -> (s32[], f32[9,5]) {
  %s = (s32[], f32[9,5]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[9,5]{1,0} get-tuple-element(%s), index=1
  %row = f32[1,5]{1,0} dynamic-slice(%x, %i, %i), dynamic_slice_sizes={1,5}
  ROOT %t = (s32[], f32[9,5]{1,0}) tuple(%i, %x)
}
"""


@pytest.mark.parametrize(
    ("trips", "count", "loop"),
    [('{"known_trip_count":{"n":"3"}}', 3, ""), ("{}", 1, "w")],
)
def test_kernels_of_a_loop_count_for_each_trip(trips, count, loop):
    (kernel,) = kernels_of(
        "  %a = (s32[], f32[9,5]{1,0}) parameter(0)\n"
        "  ROOT %w = (s32[], f32[9,5]{1,0}) while(%a), condition=%cond, body=%body, "
        f"backend_config={trips}",
        LOOPS,
    )
    assert kernel.count == count and kernel.loop == loop
    assert kernel.num_bytes == 2 * 5 * 4 + 4  # the index, which is used twice


@pytest.mark.parametrize(("size", "count"), [(2048, 1), (4096, 3), (8192, 6)])
def test_long_rows_are_sorted_by_several_kernels(size, count):
    (kernel,) = kernels_of(
        f"  %a = s32[3,{size}]{{1,0}} parameter(0)\n"
        f"  ROOT %s = s32[3,{size}]{{1,0}} sort(%a), dimensions={{1}}, to_apply=%less"
    )
    assert kernel.count == count and kernel.category == "sort"


def test_the_estimate_is_a_roofline():
    from xla_kernels.kernel_costs import Kernel, Rates

    rates = Rates(1e12, 1e14, 5e13, 1e13, 1e-6)
    kernel = Kernel("k", "product", "", 2, "", 1e6, 4e9, False, 1e7)
    assert kernel.seconds(rates) == pytest.approx(2 * (40e-6 + 1e-6))
    assert kernel._replace(is_float32=True).seconds(rates) == pytest.approx(162e-6)
    assert kernel._replace(flops=0).seconds(rates) == pytest.approx(4e-6)


def test_a_text_without_an_entry_is_refused():
    from xla_kernels.optimized_hlo import read_module

    with pytest.raises(ValueError, match="no module of XLA"):
        read_module("HloModule m")


def test_a_missing_compiler_is_named(monkeypatch):
    from xla_kernels.absent_gpu import Compiler

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install jax-cuda12-plugin"):
        Compiler("H100")


def report_of(*flags: str) -> dict:
    """The report of the benchmark on a tiny model."""
    size = ["--hparams", "num_layers=1,d_model=32,num_heads=2", "--vocab_size", "300"]
    program = [sys.executable, FOLDER / "gpu_kernels.py", "--config", "tiny", *size]
    process = subprocess.run(
        [*program, "--dtype", "bfloat16", "--json", *flags],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(process.stdout)


@needs_compiler
@pytest.mark.slow
def test_a_training_step_has_the_products_of_its_formula():
    from matmul_flops import total_flops, training_matmuls

    from t2t_keras import registry
    from t2t_keras.plugins.reports.costs import count_parameters

    report = report_of("--batch", "64", "--length", "16", "--card", "a100")
    hparams = registry.hparams("tiny").parse("num_layers=1,d_model=32,num_heads=2")
    parameters = count_parameters(hparams, 300)["total"]
    flops = total_flops(training_matmuls(hparams, 300, 64, 16, 16))
    step, update = report["parts"].values()
    # The vocabulary is padded, and sums over columns may be products.
    assert flops <= 1e12 * step["tflop"] <= 1.5 * flops
    assert update["tflop"] == 0
    # Weights, gradients and both moments; the new values take the old ones' place.
    assert update["memory_gb"] == pytest.approx(16 * parameters / 1e9, rel=0.05)
    assert step["kernels"] > 100 and update["kernels"] > 10
    for part in (step, update):
        sums = [row["estimate_ms"] for row in part["categories"].values()]
        assert sum(sums) == pytest.approx(part["estimate_ms"]) and sum(sums) > 0


@needs_compiler
@pytest.mark.slow
def test_a_step_of_the_search_is_apart_from_the_encoder():
    report = report_of("--search", "--batch", "2", "--length", "8", "--max_length", "8")
    encoder, *steps = report["parts"].values()
    assert encoder["tflop"] > 0
    # The loops differ only in the size of the cache.
    assert len({step["categories"]["product"]["kernels"] for step in steps}) == 1
    for step in steps:
        assert encoder["tflop"] > step["tflop"] > 0
        operations = [kernel["operation"] for kernel in step["largest"]]
        assert all("while" in name for name in operations if name)
