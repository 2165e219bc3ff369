/*
 * Greyhound: cross-entropy for training, as a C library.
 *
 * One call reads logits once, adds up the loss, and overwrites the logits with
 * their gradient. This header is the whole public interface. It is plain C99,
 * is also valid C++11, and needs no CUDA header.
 *
 * Contents
 *   Version      gh_version, gh_version_string
 *   Status       gh_status, gh_status_string, gh_last_error
 *   Types        gh_dtype, gh_stream
 *   Operations   gh_cross_entropy_fwd_bwd
 *
 * Threads. Every function may be called from any number of threads at once, on
 * any number of streams and devices, as long as the calls do not write the same
 * memory.
 *
 * Stability. Names, values and signatures below stay as they are for as long as
 * the major version (before 1.0: the minor version) stays; later releases only
 * add to them. See docs/abi.md.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GREYHOUND_GREYHOUND_H
#define GREYHOUND_GREYHOUND_H

#include <stdint.h>

#if defined(_WIN32)
#define GH_API
#elif defined(__GNUC__)
#define GH_API __attribute__((visibility("default")))
#else
#define GH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------- */

#define GH_VERSION_MAJOR 0
#define GH_VERSION_MINOR 1
#define GH_VERSION_PATCH 0

/* The version of this header, comparable with what gh_version() returns. */
#define GH_VERSION ((uint32_t)GH_VERSION_MAJOR << 16 | (uint32_t)GH_VERSION_MINOR << 8 | (uint32_t)GH_VERSION_PATCH)

/* The version of the loaded library: major << 16 | minor << 8 | patch. */
GH_API uint32_t gh_version(void);

/* The same as static text, "0.1.0". */
GH_API const char *gh_version_string(void);

/* ---- Status -------------------------------------------------------------- */

/*
 * What a call answers: GH_SUCCESS, or the reason why it did nothing. A call
 * that fails has written nothing through any pointer and leaves a CUDA context
 * usable (GH_ERROR_CUDA reports what CUDA itself said, which may be an error
 * from earlier work in that context).
 *
 * A plain 32-bit integer rather than an enum, so that its size is part of the
 * ABI and a value added by a later library is still a valid gh_status.
 */
typedef int32_t gh_status;

enum {
    GH_SUCCESS = 0,
    GH_ERROR_NULL_POINTER = 1,        /* a required pointer is NULL */
    GH_ERROR_INVALID_SIZE = 2,        /* negative, zero where it must not be, or too large to address */
    GH_ERROR_INVALID_DTYPE = 3,       /* not one of gh_dtype's values */
    GH_ERROR_INVALID_VALUE = 4,       /* a number outside its domain, such as a NaN multiplier */
    GH_ERROR_MISALIGNED_POINTER = 5,  /* not aligned to its element */
    GH_ERROR_OVERLAP = 6,             /* memory that is written overlaps other memory of the call */
    GH_ERROR_UNREACHABLE_POINTER = 7, /* memory that the stream's device cannot access */
    GH_ERROR_LABEL_OUT_OF_RANGE = 8,  /* host engine: neither in [0, vocab) nor ignore_index */
    GH_ERROR_NO_CUDA = 9,             /* this library was built without its CUDA engine */
    GH_ERROR_NO_DEVICE = 10,          /* no CUDA driver or no CUDA device on this machine */
    GH_ERROR_UNSUPPORTED_DEVICE = 11, /* the device is older than compute capability 8.0 */
    GH_ERROR_CUDA = 12                /* a CUDA call failed; gh_last_error() has CUDA's words */
};

/*
 * One line of static English text for a status. Never NULL: a value that this
 * library does not know gives "unknown status".
 */
GH_API const char *gh_status_string(gh_status status);

/*
 * The calling thread's last failure, in one line that names the argument and
 * its value: "labels[3] = 70000: not in [0, 50257) and not ignore_index
 * (-100)". Returns "" if no call of this thread has failed; a call that
 * succeeds leaves it as it was. Never NULL. The text stays valid until this
 * thread's next failing call.
 */
GH_API const char *gh_last_error(void);

/* ---- Types --------------------------------------------------------------- */

/* The element type of logits and of their gradient. */
typedef int32_t gh_dtype;

enum {
    GH_DTYPE_F32 = 0, /* IEEE binary32 */
    GH_DTYPE_F16 = 1, /* IEEE binary16 */
    GH_DTYPE_BF16 = 2 /* bfloat16: binary32's upper half */
};

/*
 * Where, and in what order, the work runs. The same type as cudaStream_t.
 *
 *   a CUDA stream   On the stream's device, after the stream's earlier work.
 *                   The call returns without waiting. It may be captured into a
 *                   graph, it allocates nothing, and it leaves the current
 *                   device as it was.
 *   NULL            The current device's default stream, as in CUDA.
 *   GH_STREAM_HOST  Now, on the CPU, with pointers to host memory. The call
 *                   returns when the work is done.
 *
 * Nothing is guessed from where a pointer points to: a device pointer with
 * GH_STREAM_HOST is an error, and so is a pointer that the stream's device
 * cannot access.
 */
typedef struct CUstream_st *gh_stream;

#define GH_STREAM_HOST ((gh_stream)(intptr_t)-1)

/* ---- Cross-entropy with gradient ----------------------------------------- */

/*
 * Adds up the cross-entropy loss of `batch` rows and overwrites their logits
 * with the gradient of the summed loss, in one pass over memory.
 *
 * With x = logits[i], y = labels[i], and for every row i with y != ignore_index
 *
 *   lse_i         = log(sum_j exp(x_j))
 *   ce_sum       += lse_i - x_y
 *   z_sum        += lse_i^2
 *   n_valid      += 1
 *   dlogits[i][j] = exp(x_j - lse_i) * (1 + 2 * z_loss_multiplier * lse_i) - (j == y)
 *
 * so that dlogits is the gradient of ce_sum + z_loss_multiplier * z_sum. It is
 * not divided by anything. (z-loss: Chowdhery et al., PaLM, section 5; the
 * term that keeps the softmax normaliser near 1.) Rows with y == ignore_index
 * get a gradient of exactly 0, add nothing, and their logits are not read.
 *
 *   logits             [in, out] [batch, vocab] of dtype, row-major and
 *                      contiguous; becomes dlogits. Aligned to its element, no
 *                      more. May be NULL if batch is 0.
 *   dtype              [in] a gh_dtype. All arithmetic is in fp32 or better;
 *                      gradients are rounded to dtype once, at the end.
 *   labels             [in] [batch], the class of each row, in [0, vocab) or
 *                      ignore_index. May be NULL if batch is 0.
 *   batch              [in] rows, at least 0. 0 is a success that touches
 *                      nothing.
 *   vocab              [in] columns, at least 1. batch * vocab may exceed 2^32.
 *   z_loss_multiplier  [in] finite. 0 turns the z-loss off.
 *   ignore_index       [in] any value, also one inside [0, vocab).
 *   ce_sum             [in, out] one float, added to: zero it before the first
 *                      call. In nats.
 *   z_sum              [in, out] one float, added to, not multiplied by
 *                      z_loss_multiplier. May be NULL.
 *   n_valid            [in, out] one float, added to. May be NULL.
 *   stream             [in] see gh_stream. All pointers are memory of its
 *                      device (or memory which that device can access), or host
 *                      memory for GH_STREAM_HOST.
 *
 * Aliasing: no two of logits, labels, ce_sum, z_sum and n_valid may overlap.
 *
 * Special values: a column of -inf has probability and gradient 0. A row that
 * holds NaN or +inf, or only -inf, becomes NaN in loss and gradient. A label
 * whose logit is -inf, in a row that is not all -inf, gives a loss of +inf.
 *
 * Labels out of range never cause an out-of-range access. On the host they are
 * GH_ERROR_LABEL_OUT_OF_RANGE before anything is written. On a CUDA stream,
 * where nobody may wait for the answer, that row's gradient and all of its
 * contributions except n_valid's are NaN.
 *
 * Summation: the host engine's results are bitwise the same for any number of
 * threads. On a CUDA stream the gradient is bitwise repeatable, and the order
 * in which rows are added to the sums is not fixed.
 *
 * Returns GH_SUCCESS, or an error with nothing written:
 *   GH_ERROR_NULL_POINTER         logits, labels or ce_sum is NULL
 *   GH_ERROR_INVALID_SIZE         batch < 0, vocab < 1, or batch * vocab
 *                                 elements exceed the address space
 *   GH_ERROR_INVALID_DTYPE        dtype is not a gh_dtype
 *   GH_ERROR_INVALID_VALUE        z_loss_multiplier is NaN or infinite
 *   GH_ERROR_MISALIGNED_POINTER   a pointer is not aligned to its element
 *   GH_ERROR_OVERLAP              two arguments overlap
 *   GH_ERROR_UNREACHABLE_POINTER  the stream's device cannot access a pointer
 *   GH_ERROR_LABEL_OUT_OF_RANGE   GH_STREAM_HOST only
 *   GH_ERROR_NO_CUDA, GH_ERROR_NO_DEVICE, GH_ERROR_UNSUPPORTED_DEVICE,
 *   GH_ERROR_CUDA                 any stream but GH_STREAM_HOST
 */
GH_API gh_status gh_cross_entropy_fwd_bwd(
    void *logits, gh_dtype dtype,
    const int64_t *labels,
    int64_t batch, int64_t vocab,
    float z_loss_multiplier, int64_t ignore_index,
    float *ce_sum, float *z_sum, float *n_valid,
    gh_stream stream);

#ifdef __cplusplus
}
#endif

#endif /* GREYHOUND_GREYHOUND_H */
