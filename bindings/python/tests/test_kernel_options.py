"""The raw layer with every option, on arrays of several libraries."""

from __future__ import annotations

import ctypes
import sys
import types

import numpy as np
import oracle
import pytest
from conftest import require_cuda

import greyhound
from greyhound import _arrays
from greyhound.kernels.cross_entropy import (
    ROW_STATISTICS_BYTES,
    cross_entropy_backward_kernel,
    cross_entropy_kernel,
    cross_entropy_with_grad_kernel,
    cross_entropy_workspace_size,
    scale_dlogits_kernel,
)

BATCH, VOCAB = 17, 129
OPTIONS = {"label_smoothing": 0.1, "z_loss_multiplier": 0.01, "logit_scale": 1.7, "softcap": 20.0}
ROWS = ("row_loss", "row_lse", "row_target_log_prob", "row_entropy")
SUMS = ("n_valid", "n_correct", "n_out_of_range")


class DLPackOnly:
    """A NumPy array that shows nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldDLPack(DLPackOnly):
    """As exporters of before DLPack 1.0 do."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


def from_numpy_to_torch(array):
    return pytest.importorskip("torch", reason="PyTorch is not installed").from_numpy(array)


# How NumPy arrays are handed over: the kernel then works on the same memory.
HAND_OVER = {
    "numpy": lambda array: array,
    "torch": from_numpy_to_torch,
    "dlpack": DLPackOnly,
    "dlpack before 1.0": OldDLPack,
}


class Memory:
    """The arrays of one call on the CPU."""

    def __init__(self, generator, *, dtype=np.float32, ignored=3):
        self.logits = (4 * generator.standard_normal((BATCH, VOCAB))).astype(dtype)
        self.target = generator.integers(0, VOCAB, size=BATCH)
        self.target[:ignored] = -100
        self.weight = generator.uniform(0, 2, size=VOCAB).astype(np.float32)
        self.row_dloss, self.row_dentropy = generator.standard_normal((2, BATCH)).astype(np.float32)
        self.dloss = np.asarray(generator.uniform(0.5, 3), np.float32)
        self.dlogits = np.full_like(self.logits, 7)
        for name in ROWS:
            setattr(self, name, np.full(BATCH, 7, np.float32))
        self.row_argmax = np.full(BATCH, 7, np.int64)
        self.row_statistics = np.zeros(BATCH * ROW_STATISTICS_BYTES // 8, np.int64)
        for name in ("loss", "z_loss", *SUMS):
            setattr(self, name, np.full(1, 7, np.float32))

    def given(self, hand_over, *names):
        return {name: hand_over(getattr(self, name)) for name in names}

    def expected(self, reduction, dloss, dentropy=0.0):
        return oracle.Options(
            self.logits.astype(np.float64),
            self.target,
            self.logits.dtype.name,
            weight=self.weight,
            reduction=reduction,
            dloss=dloss,
            dentropy=dentropy,
            **OPTIONS,
        )


@pytest.mark.parametrize("kind", HAND_OVER)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_every_output_matches_float64(generator, kind, reduction):
    memory = Memory(generator)
    hand_over = HAND_OVER[kind]
    reduced = () if reduction == "none" else ("loss", "z_loss")
    outputs = memory.given(hand_over, "dlogits", *ROWS, "row_argmax", "row_statistics", *reduced, *SUMS)
    inputs = memory.given(hand_over, "weight", "dloss", "row_dloss", "row_dentropy")
    logits, target = hand_over(memory.logits), hand_over(memory.target)
    before = memory.logits.copy()
    cross_entropy_kernel(logits, target, reduction=reduction, **inputs, **outputs, **OPTIONS)
    expected = memory.expected(reduction, memory.dloss * memory.row_dloss, memory.row_dentropy)
    np.testing.assert_array_equal(memory.logits, before)
    expected.dlogits.check(memory.dlogits, "dlogits")
    expected.row_loss.check(memory.row_loss, "row_loss")
    expected.lse.check(memory.row_lse, "row_lse")
    expected.target_log_prob.check(memory.row_target_log_prob, "row_target_log_prob")
    expected.entropy.check(memory.row_entropy, "row_entropy")
    np.testing.assert_array_equal(memory.row_argmax, expected.argmax)
    for name in reduced:
        getattr(expected, name).check(getattr(memory, name)[0], name)
    assert (memory.n_valid, memory.n_correct, memory.n_out_of_range) == (BATCH - 3, expected.n_correct, 0)

    again = np.full_like(memory.logits, 7)
    saved = memory.given(hand_over, "row_statistics")
    cross_entropy_backward_kernel(logits, target, hand_over(again), reduction=reduction, **saved, **inputs, **OPTIONS)
    assert again.tobytes() == memory.dlogits.tobytes()
    cross_entropy_backward_kernel(logits, target, logits, reduction=reduction, **saved, **inputs, **OPTIONS)
    assert memory.logits.tobytes() == memory.dlogits.tobytes()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(generator, name):
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    memory = Memory(generator, dtype=np.dtype(name))
    cross_entropy_kernel(memory.logits, memory.target, weight=memory.weight, dlogits=memory.dlogits, **OPTIONS)
    memory.expected("sum", 1.0).dlogits.check(memory.dlogits.astype(np.float64), "dlogits")


def test_kinds_may_be_mixed(generator):
    memory = Memory(generator)
    cross_entropy_kernel(
        DLPackOnly(memory.logits),
        from_numpy_to_torch(memory.target),
        weight=memory.weight,
        dlogits=OldDLPack(memory.dlogits),
        **OPTIONS,
    )
    memory.expected("sum", 1.0).dlogits.check(memory.dlogits, "dlogits")


def test_gradient_from_lse(generator):
    memory = Memory(generator)
    row_lse = memory.expected("sum", 1.0).lse.exact.astype(np.float32)
    cross_entropy_backward_kernel(
        memory.logits, memory.target, memory.dlogits, row_lse=row_lse, weight=memory.weight, **OPTIONS
    )
    expected = memory.expected("sum", 1.0)
    # One fp32 number for a row: a relative error of |lse| * 2^-24 in each probability, at most 1, times the slope of
    # the loss with respect to lse, here below 4; and as much in the label's own.
    slack = 4 * OPTIONS["logit_scale"] * 2**-24 * (np.abs(row_lse)[:, None] + 1)
    expected.dlogits.bound = expected.dlogits.bound + slack
    expected.dlogits.check(memory.dlogits, "dlogits")


def test_sums_are_overwritten_or_added_to(generator):
    memory = Memory(generator)
    cross_entropy_kernel(memory.logits, memory.target, n_valid=memory.n_valid)
    assert memory.n_valid == BATCH - 3
    cross_entropy_kernel(memory.logits, memory.target, n_valid=memory.n_valid, accumulate=True)
    assert memory.n_valid == 2 * (BATCH - 3)


def test_what_lies_between_rows_stays(generator):
    memory = Memory(generator)
    wide = np.full((BATCH, VOCAB + 7), 7, np.float32)
    wide_gradient = wide.copy()
    wide[:, :VOCAB] = memory.logits
    cross_entropy_kernel(
        wide[:, :VOCAB], memory.target, weight=memory.weight, dlogits=wide_gradient[:, :VOCAB], **OPTIONS
    )
    memory.expected("sum", 1.0).dlogits.check(wide_gradient[:, :VOCAB], "dlogits")
    assert np.all(wide_gradient[:, VOCAB:] == 7)


def test_no_rows(generator):
    logits, target = np.empty((0, 5), np.float32), np.empty(0, np.int64)
    loss = np.full(1, 7, np.float32)
    cross_entropy_kernel(logits, target, loss=loss, row_loss=np.empty(0, np.float32), dlogits=logits, reduction="mean")
    assert loss == 0
    cross_entropy_kernel(logits, target, dlogits=logits)
    statistics = np.empty(0, np.int64)
    cross_entropy_backward_kernel(logits, target, logits, row_statistics=statistics)


@pytest.mark.parametrize("kind", HAND_OVER)
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_scale_dlogits(generator, kind, name):
    if name == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16
        if kind != "numpy":
            pytest.skip("NumPy's bfloat16 cannot be handed over")
    else:
        dtype = np.dtype(name)
    hand_over = HAND_OVER[kind]
    for columns in (VOCAB, VOCAB + 3):  # the last 3 lie between the rows
        memory = generator.standard_normal((BATCH, columns)).astype(dtype)
        dlogits = memory[:, :VOCAB]
        for factor in (1.0, float(generator.uniform(-3, 3)), 0.0):
            dloss = np.asarray(factor, np.float32)
            expected = memory.copy()
            expected[:, :VOCAB] = (dlogits.astype(np.float32) * dloss).astype(dtype)
            scale_dlogits_kernel(hand_over(dlogits), hand_over(dloss))
            assert memory.tobytes() == expected.tobytes()
    empty = np.empty((0, 5), np.float32)
    scale_dlogits_kernel(hand_over(empty), hand_over(np.ones(1, np.float32)))


def test_int32_targets(generator):
    memory = Memory(generator)
    cross_entropy_kernel(memory.logits, memory.target.astype(np.int32), row_loss=memory.row_loss)
    same = np.empty(BATCH, np.float32)
    cross_entropy_kernel(memory.logits, memory.target, row_loss=same)
    assert same.tobytes() == memory.row_loss.tobytes()


def test_the_short_call_takes_arrays_that_make_others(generator):
    strict = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    memory = Memory(generator)
    logits, target = strict.asarray(memory.logits.copy()), strict.asarray(memory.target)
    sums = cross_entropy_with_grad_kernel(logits, target, z_loss_multiplier=0.25)
    expected = memory.logits.copy()
    expected_sums = cross_entropy_with_grad_kernel(expected, memory.target, z_loss_multiplier=0.25)
    assert [float(value) for value in sums] == [float(value) for value in expected_sums]
    assert np.from_dlpack(logits).tobytes() == expected.tobytes()


def test_the_short_call_takes_arrays_of_cupy(generator, monkeypatch):
    # As much of CuPy as the call needs, in host memory: no __array_namespace__, and no `device` in zeros().
    current = []

    class Device:
        def __enter__(self):
            current.append(self)

        def __exit__(self, *_):
            current.pop()

    class Array(DLPackOnly):
        device = Device()

        def __getitem__(self, index):
            return self.array[index]

    def zeros(shape, dtype=float, order="C"):
        assert current == [Array.device]
        return Array(np.zeros(shape, dtype, order))

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=Array, zeros=zeros))
    memory = Memory(generator)
    logits = memory.logits.copy()
    sums = cross_entropy_with_grad_kernel(Array(logits), Array(memory.target), z_loss_multiplier=0.25)
    assert current == []
    expected = memory.logits.copy()
    expected_sums = cross_entropy_with_grad_kernel(expected, memory.target, z_loss_multiplier=0.25)
    assert [float(value) for value in sums] == [float(value) for value in expected_sums]
    assert logits.tobytes() == expected.tobytes()


def test_dlpack_memory_is_given_back(generator):
    import gc
    import weakref

    class Tracked(np.ndarray):
        pass

    memory = Memory(generator)
    array = memory.logits.view(Tracked)
    gone = weakref.ref(array)
    cross_entropy_kernel(DLPackOnly(array), memory.target, row_loss=memory.row_loss)
    del array
    gc.collect()
    assert gone() is None


# ---- What is refused ---------------------------------------------------------------------------------


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


REFUSED = {
    # what is wrong: (changed arguments of a call with a dlogits and a row_loss, exception, in the message)
    "a list": (lambda m: {"logits": [[0.0]]}, TypeError, r"logits: expected a torch.Tensor .* got list"),
    "float64": (lambda m: {"logits": m.logits.astype(np.float64)}, TypeError, "logits: expected float32.*float64"),
    "int8 target": (lambda m: {"target": m.target.astype(np.int8)}, TypeError, "target: expected int64 or int32.*int8"),
    "complex": (lambda m: {"logits": DLPackOnly(m.logits.astype(complex))}, TypeError, "logits: expected numbers"),
    "3-d logits": (lambda m: {"logits": m.logits[None]}, ValueError, r"logits: expected the shape \[batch, vocab\]"),
    "short target": (
        lambda m: {"target": m.target[1:]},
        ValueError,
        r"target: expected the shape .*\[17\], got \[16\]",
    ),
    "columns": (lambda m: {"logits": np.asfortranarray(m.logits)}, ValueError, "logits: its rows must be contiguous"),
    "overlapping rows": (
        lambda m: {"logits": np.lib.stride_tricks.as_strided(m.logits, (BATCH, VOCAB), (4, 4))},
        ValueError,
        "logits_row_stride = 1",
    ),
    "short dlogits": (lambda m: {"dlogits": m.dlogits[1:]}, ValueError, r"dlogits: expected float32 \[17, 129\]"),
    "half dlogits": (lambda m: {"dlogits": m.dlogits.astype(np.float16)}, ValueError, "dlogits: .*got float16"),
    "read-only dlogits": (lambda m: {"dlogits": read_only(m.dlogits)}, ValueError, "dlogits: read-only"),
    "read-only by DLPack": (
        lambda m: {"row_loss": DLPackOnly(read_only(m.row_loss))},
        ValueError,
        "row_loss: (read-only|not given out by DLPack: .*readonly)",  # DLPack 1 and older
    ),
    "double weight": (lambda m: {"weight": m.weight.astype(np.float64)}, TypeError, "weight: expected float32"),
    "short weight": (
        lambda m: {"weight": m.weight[1:]},
        ValueError,
        r"weight: expected the shape \[129\], got \[128\]",
    ),
    "strided row_loss": (lambda m: {"row_loss": m.dlogits[:, 0]}, ValueError, "row_loss: must be contiguous"),
    "two losses": (lambda m: {"loss": m.row_loss[:2]}, ValueError, r"loss: expected the shape \[\], got \[2\]"),
    "short statistics": (
        lambda m: {"row_statistics": m.row_statistics[1:]},
        ValueError,
        "row_statistics: expected 544",
    ),
    "foreign order": (lambda m: {"target": m.target.astype(">i8")}, TypeError, "target: expected native byte order"),
    "masked": (lambda m: {"logits": np.ma.masked_array(m.logits)}, TypeError, "logits: masked arrays"),
    "overlap": (
        lambda m: {"dlogits": m.logits[:, ::-1][:, ::-1], "row_loss": m.logits[0, :BATCH]},
        ValueError,
        "overlap",
    ),
    "label": (lambda m: {"target": m.target + VOCAB * (m.target >= 0)}, greyhound.LabelError, r"labels\[3\] = "),
    "no such reduction": (lambda m: {"reduction": "max"}, ValueError, "reduction: expected"),
    "loss of none": (lambda m: {"loss": m.loss, "reduction": "none"}, ValueError, "loss"),
    "NaN smoothing": (lambda m: {"label_smoothing": float("nan")}, ValueError, "label_smoothing = -?nan"),
    "text as dloss": (lambda m: {"dloss": "1"}, TypeError, "dloss: expected"),
    "stream on the CPU": (lambda m: {"stream": 0}, ValueError, "stream: given, but logits is on the CPU"),
}


# What tensors cannot be.
NOT_FOR_TORCH = ("a list", "complex", "read-only dlogits", "read-only by DLPack", "foreign order", "masked")


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("case", REFUSED)
def test_refuses_and_writes_nothing(generator, case, kind):
    if kind == "torch" and case in NOT_FOR_TORCH:
        pytest.skip("not with tensors")
    memory = Memory(generator)
    change, exception, message = REFUSED[case]
    arguments = {
        "logits": memory.logits,
        "target": memory.target,
        "dlogits": memory.dlogits,
        "row_loss": memory.row_loss,
        **change(memory),
    }
    for name, value in arguments.items():
        arguments[name] = HAND_OVER[kind](value) if isinstance(value, np.ndarray) else value
    before = memory.logits.copy()
    with pytest.raises(exception, match=message):
        cross_entropy_kernel(**arguments)
    np.testing.assert_array_equal(memory.logits, before)
    assert np.all(memory.dlogits == 7) and np.all(memory.row_loss == 7)


SCALE_REFUSED = {
    # what is wrong: (changed arguments, exception, in the message)
    "a list": (lambda m: {"dlogits": [[0.0]]}, TypeError, "dlogits: expected a torch.Tensor .* got list"),
    "float64": (lambda m: {"dlogits": m.dlogits.astype(np.float64)}, TypeError, "dlogits: expected float32.*float64"),
    "one row": (lambda m: {"dlogits": m.dlogits[0]}, ValueError, r"dlogits: .* \[batch, vocab\], got \[129\]"),
    "columns": (lambda m: {"dlogits": np.asfortranarray(m.dlogits)}, ValueError, "dlogits: its rows must be contig"),
    "read-only": (lambda m: {"dlogits": read_only(m.dlogits)}, ValueError, "dlogits: read-only"),
    "no classes": (lambda m: {"dlogits": m.dlogits[:, :0]}, ValueError, "vocab = 0"),
    "overlapping rows": (
        lambda m: {"dlogits": np.lib.stride_tricks.as_strided(m.dlogits, (BATCH, VOCAB), (4, 4))},
        ValueError,
        "dlogits_row_stride = 1",
    ),
    "a number": (lambda m: {"dloss": 2.0}, TypeError, "dloss: expected a torch.Tensor .* got float"),
    "double dloss": (lambda m: {"dloss": m.dloss.astype(np.float64)}, TypeError, "dloss: expected float32.*float64"),
    "two factors": (lambda m: {"dloss": m.row_dloss[:2]}, ValueError, r"dloss: expected one number, .* \[2\]"),
    "a NumPy scalar": (lambda m: {"dloss": m.dlogits[3, 5]}, TypeError, "dloss: expected a torch.Tensor"),
    "part of itself": (lambda m: {"dloss": m.dlogits[3, 5:6]}, ValueError, "dloss_ptr = .* overlaps dlogits"),
    "cuda": (lambda m: {"dloss": FakeCudaArray((1,), "<f4")}, ValueError, "dloss: on cuda, but dlogits is on cpu"),
    "stream on the CPU": (lambda m: {"stream": 0}, ValueError, "stream: given, but dlogits is on the CPU"),
}


@pytest.mark.parametrize("case", SCALE_REFUSED)
def test_scale_refuses_and_writes_nothing(generator, case):
    memory = Memory(generator)
    change, exception, message = SCALE_REFUSED[case]
    with pytest.raises(exception, match=message):
        scale_dlogits_kernel(**{"dlogits": memory.dlogits, "dloss": memory.dloss, **change(memory)})
    assert np.all(memory.dlogits == 7)


@pytest.mark.parametrize("both", [False, True])
def test_backward_wants_one_of_two(generator, both):
    memory = Memory(generator)
    saved = memory.given(lambda array: array, "row_statistics", "row_lse") if both else {}
    with pytest.raises(ValueError, match=r"row_statistics.*row_lse"):
        cross_entropy_backward_kernel(memory.logits, memory.target, memory.dlogits, **saved)


# ---- The shortcut for tensors ------------------------------------------------------------------------

SHORT_ROWS = ("row_loss", "row_lse", "row_target_log_prob", "row_entropy", "row_argmax", "row_statistics")
SHORT_SUMS = ("loss", "z_loss", "n_valid", "n_correct", "n_out_of_range")


def tensors_of(memory):
    """The arguments of a call that wants everything, as tensors of their own."""
    import torch

    names = ("weight", "dloss", "row_dloss", "row_dentropy", "dlogits", *SHORT_ROWS, *SHORT_SUMS)
    return {name: torch.from_numpy(getattr(memory, name).copy()) for name in ("logits", "target", *names)}


@pytest.fixture
def taken(monkeypatch):
    """Whether each call with tensors took the shortcut."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from greyhound import _torch_kernel
    from greyhound.kernels import cross_entropy as module

    # The first call on a device goes the long way.
    cross_entropy_kernel(torch.zeros(1, 1), torch.zeros(1).long(), loss=torch.empty(()))
    calls = []

    def spy(*arguments):
        calls.append(_torch_kernel.try_to_run(*arguments))
        return calls[-1]

    monkeypatch.setattr(module, "_shortcuts", {torch.Tensor: spy})
    return calls


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_shortcut_does_what_the_long_way_does(generator, taken, monkeypatch, reduction, in_place):
    import torch

    from greyhound.kernels import cross_entropy as module

    memory = Memory(generator)
    both = tensors_of(memory), tensors_of(memory)
    for arguments in both:
        if in_place:
            arguments["dlogits"] = arguments["logits"]
        if reduction == "none":
            del arguments["loss"], arguments["z_loss"]
        cross_entropy_kernel(**arguments, **OPTIONS, reduction=reduction, accumulate=True)
        monkeypatch.setattr(module, "_shortcuts", {torch.Tensor: lambda *arguments: False})
    assert taken == [True]
    for name, tensor in both[0].items():
        assert tensor.numpy().tobytes() == both[1][name].numpy().tobytes(), name
        assert tensor._version == both[1][name]._version, name


def padded(tensor):
    """The same numbers, in rows that are further apart."""
    import torch

    return torch.nn.functional.pad(tensor, (0, 3))[:, : tensor.shape[1]]


def as_parameter(tensor):
    import torch

    return torch.nn.Parameter(tensor, requires_grad=False)


def as_inference_tensor(tensor):
    import torch

    with torch.inference_mode():
        return tensor.clone()


# What is unusual: (an argument, what is made of it). All of these are taken, the long way.
UNUSUAL = {
    "a parameter": ("logits", as_parameter),
    "a weight that is a parameter": ("weight", as_parameter),
    "strided rows": ("logits", padded),
    "a strided gradient": ("dlogits", padded),
    "an inference weight": ("weight", as_inference_tensor),
    "NumPy's": ("row_loss", lambda tensor: tensor.numpy()),
    "NumPy's workspace": ("workspace", lambda tensor: np.empty(8, np.uint8)),
    "DLPack": ("row_dloss", lambda tensor: DLPackOnly(tensor.numpy())),
    "an integer": ("dloss", lambda tensor: 1),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_what_is_unusual_goes_the_long_way(generator, taken, case):
    memory = Memory(generator)
    name, change = UNUSUAL[case]
    arguments, plain = tensors_of(memory), tensors_of(memory)
    arguments[name] = change(arguments.get(name))
    if case == "an integer":
        plain["dloss"] = 1.0
    for call in (arguments, plain):
        cross_entropy_kernel(**call, **OPTIONS)
    # Logits that are no plain Tensor by type are not even tried.
    assert taken == ([True] if case == "a parameter" else [False, True])
    for output in ("dlogits", *SHORT_ROWS, *SHORT_SUMS):
        np.testing.assert_array_equal(np.asarray(arguments[output]), plain[output].numpy(), err_msg=output)
    with pytest.raises(TypeError, match="workspace: expected"):
        cross_entropy_kernel(**plain, workspace=object())


def test_torch_outputs_are_autograd_s_business(generator):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    memory = Memory(generator)
    logits, target = torch.from_numpy(memory.logits), torch.from_numpy(memory.target)
    row_loss = torch.empty(BATCH)
    version = row_loss._version
    cross_entropy_kernel(logits, target, row_loss=row_loss)
    assert row_loss._version == version + 1
    with pytest.raises(ValueError, match="dlogits: requires grad"):
        cross_entropy_kernel(logits, target, dlogits=torch.empty_like(logits, requires_grad=True))
    with pytest.raises(TypeError, match="logits: expected a dense tensor"):
        cross_entropy_kernel(logits.to_sparse(), target, row_loss=row_loss)
    with pytest.raises(ValueError, match="logits: expected a CPU or CUDA tensor, got one on meta"):
        cross_entropy_kernel(logits.to("meta"), target, row_loss=row_loss)


def test_workspace_of_the_cpu_is_nothing():
    assert cross_entropy_workspace_size(None) == 0


# ---- __cuda_array_interface__ -------------------------------------------------------------------------


class FakeCudaArray:
    """What CuPy or Numba would show of an array; at an address that nobody follows."""

    def __init__(self, shape, typestr, *, dtype=None, **changes):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (0x7F0000000000, False),
            "version": 3,
            **changes,
        }
        if dtype is not None:
            self.dtype = dtype


class Named:
    def __init__(self, name):
        self.name = name


def test_cuda_arrays_are_understood():
    found = _arrays.describe("x", FakeCudaArray((3, 5), "<f2", strides=(20, 2), stream=7))
    assert (found.address, found.dtype, found.itemsize, found.shape) == (0x7F0000000000, "float16", 2, (3, 5))
    assert (found.strides, found.device, found.stream, found.is_contiguous) == ((10, 1), "cuda", 7, False)
    found = _arrays.describe("x", FakeCudaArray((3, 5), "<i8", stream=1))
    assert (found.dtype, found.strides, found.stream, found.is_contiguous) == ("int64", (5, 1), 0, True)
    found = _arrays.describe("x", FakeCudaArray((3,), "<V2", dtype=Named("bfloat16")))
    assert (found.dtype, found.stream) == ("bfloat16", None)


@pytest.mark.parametrize(
    ("array", "exception", "message"),
    [
        (FakeCudaArray((3, 5), ">f4"), TypeError, "x: expected native byte order"),
        (FakeCudaArray((3, 5), "<f4", strides=(21, 4)), ValueError, "x: its byte strides .* are no multiples"),
        (FakeCudaArray((3, 5), "<f4", mask=FakeCudaArray((3, 5), "|b1")), TypeError, "x: masked arrays"),
        (FakeCudaArray((3, 5), "<f4", data=(1 << 20, True)), ValueError, "x: read-only"),
    ],
)
def test_cuda_arrays_are_refused(array, exception, message):
    with pytest.raises(exception, match=message):
        _arrays.describe("x", array, written=True)


def streams(*values):
    names = ("logits", "target", "loss")[: len(values)]
    arrays = [_arrays.describe("x", FakeCudaArray((1,), "<f4", stream=value)) for value in values]
    return dict(zip(names, arrays, strict=True))


def test_stream_of_a_call():
    assert _arrays.stream_of(streams(7, 7, 7), None) == 7
    assert _arrays.stream_of(streams(None, None, 7), None) == 7
    assert _arrays.stream_of(streams(None, None), None) == 0
    assert _arrays.stream_of(streams(7, 8), 9) == 9
    with pytest.raises(ValueError, match="target: used on CUDA stream 0x8, but logits on 0x7"):
        _arrays.stream_of(streams(7, 8), None)


def test_cpu_and_cuda_do_not_mix(generator):
    memory = Memory(generator)
    with pytest.raises(ValueError, match="row_loss: on cuda, but logits is on cpu"):
        cross_entropy_kernel(memory.logits, memory.target, row_loss=FakeCudaArray((BATCH,), "<f4"))
    with pytest.raises(ValueError, match="target: on cpu, but logits is on cuda"):
        cross_entropy_kernel(FakeCudaArray((BATCH, VOCAB), "<f4"), memory.target, dlogits=memory.dlogits)


# ---- On a GPU ------------------------------------------------------------------------------------------


class CudaArrayInterfaceOnly:
    """A PyTorch tensor as other libraries' arrays look."""

    def __init__(self, tensor, stream=None):
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "version": 3, "stream": stream}


@pytest.mark.parametrize("kind", ["torch", "cuda_array_interface", "dlpack", "cupy"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cuda_matches_float64(generator, kind, reduction):
    require_cuda()
    import torch

    if kind == "cupy":
        cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    hand_over = {
        "torch": lambda tensor: tensor,
        "cuda_array_interface": CudaArrayInterfaceOnly,
        "dlpack": DLPackOnly,
        "cupy": lambda tensor: cupy.from_dlpack(tensor),
    }[kind]
    memory = Memory(generator)
    names = ("logits", "target", "weight", "dloss", "row_dloss", "row_dentropy", "dlogits", *ROWS, "row_argmax")
    reduced = () if reduction == "none" else ("loss", "z_loss")
    names += ("row_statistics", *reduced, *SUMS)
    tensors = {name: torch.from_numpy(getattr(memory, name)).cuda() for name in names}
    workspace = torch.empty(cross_entropy_workspace_size(), dtype=torch.uint8, device="cuda")
    given = {name: hand_over(tensor) for name, tensor in tensors.items()}
    torch.cuda.synchronize()
    cross_entropy_kernel(**given, reduction=reduction, workspace=hand_over(workspace), **OPTIONS)
    torch.cuda.synchronize()
    expected = memory.expected(reduction, memory.dloss * memory.row_dloss, memory.row_dentropy)
    found = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
    expected.dlogits.check(found["dlogits"], "dlogits")
    expected.row_loss.check(found["row_loss"], "row_loss")
    expected.entropy.check(found["row_entropy"], "row_entropy")
    np.testing.assert_array_equal(found["row_argmax"], expected.argmax)
    for name in reduced:
        getattr(expected, name).check(found[name][0], name)
    again = torch.full_like(tensors["dlogits"], 7)
    inputs = {name: given[name] for name in ("weight", "dloss", "row_dloss", "row_dentropy", "row_statistics")}
    cross_entropy_backward_kernel(
        given["logits"],
        given["target"],
        hand_over(again),
        reduction=reduction,
        workspace=hand_over(workspace),
        **inputs,
        **OPTIONS,
    )
    torch.cuda.synchronize()
    assert torch.equal(again.view(torch.int32), tensors["dlogits"].view(torch.int32))
    scale_dlogits_kernel(hand_over(again), given["dloss"])
    torch.cuda.synchronize()
    assert torch.equal(again, tensors["dlogits"] * tensors["dloss"])


def test_cupy_s_current_stream_is_used(generator):
    require_cuda()
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    memory = Memory(generator)
    expected = memory.logits.copy()
    sums = cross_entropy_with_grad_kernel(expected, memory.target)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        logits, target = cupy.asarray(memory.logits), cupy.asarray(memory.target)
        found = cross_entropy_with_grad_kernel(logits, target)
        assert not isinstance(found[0], np.generic)
        stream.synchronize()
        assert [float(value) for value in found][2] == sums[2]
        problem = oracle.cross_entropy(memory.logits.astype(np.float64), memory.target, "float32")
        problem.check(*(float(value) for value in found), cupy.asnumpy(logits))


def test_a_tensor_s_device_need_not_be_current(generator):
    require_cuda()
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    other = torch.device("cuda", (torch.cuda.current_device() + 1) % torch.cuda.device_count())
    memory = Memory(generator)
    logits, target = torch.from_numpy(memory.logits).to(other), torch.from_numpy(memory.target).to(other)
    row_loss = torch.empty(BATCH, device=other)
    cross_entropy_kernel(logits, target, row_loss=row_loss)
    assert row_loss.isfinite().all()
    with pytest.raises(ValueError, match=r"row_loss: on cuda:., but logits is on cuda:."):
        cross_entropy_kernel(logits, target, row_loss=torch.empty(BATCH, device="cuda"))


def test_struct_layout_is_c_s():
    # Guards against a platform whose ctypes pads otherwise: 8-byte fields on 8-byte offsets, no holes.
    from greyhound import _abi

    fields = _abi.gh_cross_entropy_options._fields_
    assert ctypes.sizeof(_abi.gh_cross_entropy_options) == sum(ctypes.sizeof(kind) for _, kind in fields)
