"""The raw helper on NumPy arrays: against float64, and what it refuses."""

from __future__ import annotations

import numpy as np
import oracle
import pytest

import greyhound
from greyhound.kernels.cross_entropy import cross_entropy_with_grad_kernel

SHAPES = [(1, 1), (1, 2), (3, 7), (17, 129), (5, 4099)]


def numpy_dtype(name):
    if name == "bfloat16":
        return pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16
    return np.dtype(name)


def draw(generator, batch, vocab, dtype="float32", ignored=0):
    """Logits in `dtype`, and targets of which the first `ignored` are -100."""
    logits = (4 * generator.standard_normal((batch, vocab))).astype(numpy_dtype(dtype))
    target = generator.integers(0, vocab, size=batch)
    target[:ignored] = -100
    return logits, target


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("z_loss_multiplier", [0.0, 1e-4, -0.25])
def test_matches_float64(generator, dtype, shape, z_loss_multiplier):
    logits, target = draw(generator, *shape, dtype, ignored=shape[0] // 3)
    expected = oracle.cross_entropy(logits.astype(np.float64), target, dtype, z_loss_multiplier)
    sums = cross_entropy_with_grad_kernel(logits, target, z_loss_multiplier=z_loss_multiplier)
    expected.check(*sums, logits)
    ignored = logits[target == -100].astype(np.float32)
    assert np.all(ignored == 0) and not np.any(np.signbit(ignored))


def test_returns_float32_scalars(generator):
    sums = cross_entropy_with_grad_kernel(*draw(generator, 2, 3))
    assert [type(value) for value in sums] == [np.float32] * 3


def test_ignore_index_may_be_a_class(generator):
    logits, target = draw(generator, 6, 3)
    target[:] = [0, 1, 2, 0, 1, 2]
    expected = oracle.cross_entropy(logits.astype(np.float64), target, "float32", ignore_index=1)
    expected.check(*cross_entropy_with_grad_kernel(logits, target, ignore_index=1), logits)
    assert expected.n_valid == 4


@pytest.mark.parametrize("ignore_index", [-(2**63), 2**63 - 1, np.int64(-7)])
def test_ignore_index_covers_all_of_int64(generator, ignore_index):
    logits, target = draw(generator, 2, 3)
    target[0] = ignore_index
    assert cross_entropy_with_grad_kernel(logits, target, ignore_index=ignore_index)[2] == 1


@pytest.mark.parametrize("multiplier", [1, np.float32(1), np.float64(1), np.int64(1)])
def test_multiplier_may_be_any_real_number(generator, multiplier):
    logits, target = draw(generator, 2, 3)
    same = logits.copy()
    cross_entropy_with_grad_kernel(logits, target, z_loss_multiplier=1.0)
    cross_entropy_with_grad_kernel(same, target, z_loss_multiplier=multiplier)
    np.testing.assert_array_equal(logits, same)


def test_no_rows():
    assert cross_entropy_with_grad_kernel(np.empty((0, 5), np.float32), np.empty(0, np.int64)) == (0, 0, 0)


def test_works_on_part_of_a_larger_array(generator):
    logits, target = draw(generator, 6, 5)
    before = logits.copy()
    cross_entropy_with_grad_kernel(logits[2:4], target[2:4])
    np.testing.assert_array_equal(logits[[0, 1, 4, 5]], before[[0, 1, 4, 5]])
    assert not np.any(logits[2:4] == before[2:4])


def misaligned(array):
    storage = np.empty(array.nbytes + 1, np.uint8)[1:]
    moved = storage.view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def read_only(array):
    array.flags.writeable = False
    return array


def overlapping(logits):
    """Targets of two rows, all in range, in the memory of the logits."""
    return logits.view(np.int64).reshape(-1)[:2]


def with_label(target, row, label):
    target[row] = label
    return target


REFUSED = {
    # what is wrong: (arguments from logits [2, 4] and target [2], exception, in the message)
    "logits is a list": (
        lambda x, t: (x.tolist(), t),
        TypeError,
        "logits: expected a torch.Tensor, a numpy.ndarray or a cupy.ndarray",
    ),
    "target is a list": (lambda x, t: (x, t.tolist()), TypeError, "target: expected a numpy.ndarray.*got list"),
    "float64": (lambda x, t: (x.astype(np.float64), t), TypeError, "logits: expected float32.*float64"),
    "integers": (lambda x, t: (x.astype(np.int32), t), TypeError, "logits: expected float32.*int32"),
    "foreign byte order": (lambda x, t: (x.astype(">f4"), t), TypeError, "logits: .*native byte order"),
    "int32 target": (lambda x, t: (x, t.astype(np.int32)), TypeError, "target: expected int64.*int32"),
    "foreign target": (lambda x, t: (x, t.astype(">i8")), TypeError, "target: .*native byte order"),
    "masked": (lambda x, t: (np.ma.masked_array(x), t), TypeError, "masked arrays"),
    "masked target": (lambda x, t: (x, np.ma.masked_array(t)), TypeError, "masked arrays"),
    "1-d logits": (lambda x, t: (x[0], t), ValueError, r"logits: expected the shape \[batch, vocab\], got \[4\]"),
    "3-d logits": (lambda x, t: (x[None], t), ValueError, r"logits: .*got \[1, 2, 4\]"),
    "2-d target": (lambda x, t: (x, t[:, None]), ValueError, r"target: expected.*\[2\], got \[2, 1\]"),
    "short target": (lambda x, t: (x, t[:1]), ValueError, r"target: expected.*\[2\], got \[1\]"),
    "no classes": (lambda x, t: (x[:, :0].copy(), t), ValueError, "vocab = 0"),
    "strided logits": (lambda x, t: (x[:, ::2], t), ValueError, r"logits: must be C-contiguous.*\(16, 8\)"),
    "Fortran order": (lambda x, t: (np.asfortranarray(x), t), ValueError, "logits: must be C-contiguous"),
    "strided target": (lambda x, t: (x, np.repeat(t, 2)[::2]), ValueError, "target: must be C-contiguous"),
    "read-only": (lambda x, t: (read_only(x), t), ValueError, "logits: read-only"),
    "misaligned logits": (lambda x, t: (misaligned(x), t), ValueError, "logits = 0x.*aligned"),
    "misaligned target": (lambda x, t: (x, misaligned(t)), ValueError, "labels = 0x.*aligned"),
    "overlap": (lambda x, t: (x, overlapping(x)), ValueError, "labels.*overlaps logits"),
    "label too large": (lambda x, t: (x, with_label(t, 1, 4)), greyhound.LabelError, r"labels\[1\] = 4"),
    "label negative": (lambda x, t: (x, with_label(t, 0, -1)), greyhound.LabelError, r"labels\[0\] = -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_and_writes_nothing(generator, case):
    logits, target = draw(generator, 2, 4)
    before = logits.copy()
    change, exception, message = REFUSED[case]
    arguments = change(logits, target)
    with pytest.raises(exception, match=message):
        cross_entropy_with_grad_kernel(*arguments)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize(
    ("keyword", "value", "exception", "message"),
    [
        ("z_loss_multiplier", float("nan"), ValueError, "z_loss_multiplier = -?nan"),
        ("z_loss_multiplier", float("inf"), ValueError, "z_loss_multiplier = inf"),
        ("z_loss_multiplier", 1e39, ValueError, "z_loss_multiplier = inf"),
        ("z_loss_multiplier", 10**400, ValueError, "z_loss_multiplier = inf"),
        ("z_loss_multiplier", "0", TypeError, "z_loss_multiplier: expected a number, got str"),
        ("z_loss_multiplier", None, TypeError, "z_loss_multiplier: expected a number, got NoneType"),
        ("ignore_index", 2**63, ValueError, "ignore_index = 9223372036854775808: does not fit"),
        ("ignore_index", -(2**63) - 1, ValueError, "ignore_index = -9223372036854775809: does not fit"),
        ("ignore_index", 1.0, TypeError, "ignore_index: expected an integer, got float"),
        ("ignore_index", None, TypeError, "ignore_index: expected an integer, got NoneType"),
    ],
)
def test_refuses_options(generator, keyword, value, exception, message):
    logits, target = draw(generator, 2, 4)
    before = logits.copy()
    with pytest.raises(exception, match=message):
        cross_entropy_with_grad_kernel(logits, target, **{keyword: value})
    np.testing.assert_array_equal(logits, before)


def test_label_error_is_value_error_and_index_error(generator):
    logits, target = draw(generator, 2, 4)
    for exception in (ValueError, IndexError):
        with pytest.raises(exception):
            cross_entropy_with_grad_kernel(logits, with_label(target, 0, 9))
