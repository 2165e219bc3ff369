/**
 * @file
 * Greyhound: cross-entropy for training, as a C library.
 *
 * One call reads logits once, adds up the loss, and overwrites the logits with
 * their gradient. This header is the whole public interface. It is plain C99,
 * is also valid C++11, and needs no CUDA header.
 *
 * Contents
 *
 *     Version          gh_version, gh_version_string
 *     Status           gh_status, gh_status_string, gh_last_error
 *     Types            gh_dtype, gh_stream
 *     The short call   gh_cross_entropy_fwd_bwd
 *     Every option     gh_cross_entropy, gh_cross_entropy_backward,
 *                      gh_scale_dlogits, gh_cross_entropy_options,
 *                      gh_cross_entropy_workspace_size
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

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define GH_API
#elif defined(__GNUC__)
#define GH_API __attribute__((visibility("default")))
#else
#define GH_API
#endif

/* Parameters stand in groups, a line each. */
/* clang-format off */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------- */

/** The version of this header. Before 1.0 each minor version is an ABI. */
#define GH_VERSION_MAJOR 0
/** See GH_VERSION_MAJOR. */
#define GH_VERSION_MINOR 1
/** See GH_VERSION_MAJOR. */
#define GH_VERSION_PATCH 0

/** The three in one number, comparable with what gh_version() returns. */
#define GH_VERSION ((uint32_t)GH_VERSION_MAJOR << 16 | (uint32_t)GH_VERSION_MINOR << 8 | (uint32_t)GH_VERSION_PATCH)

/** The version of the loaded library: major << 16 | minor << 8 | patch. */
GH_API uint32_t gh_version(void);

/** The same as static text, "0.1.0". */
GH_API const char *gh_version_string(void);

/* ---- Status -------------------------------------------------------------- */

/**
 * What a call answers: GH_SUCCESS, or the reason why it did nothing. A call
 * that fails has written nothing through any pointer and leaves a CUDA context
 * usable. Only GH_ERROR_CUDA promises less: it reports what CUDA itself said,
 * which may be an error from earlier work in that context, and where a call
 * takes several kernels, the first of them may have run.
 *
 * A plain 32-bit integer rather than an enum, so that its size is part of the
 * ABI and a value added by a later library is still a valid gh_status.
 */
typedef int32_t gh_status;

enum {
    GH_SUCCESS = 0,                   /**< done, or on its way on the stream */
    GH_ERROR_NULL_POINTER = 1,        /**< a required pointer is NULL */
    GH_ERROR_INVALID_SIZE = 2,        /**< negative, zero where it must not be, or too large to address */
    GH_ERROR_INVALID_DTYPE = 3,       /**< not one of gh_dtype's values */
    GH_ERROR_INVALID_VALUE = 4,       /**< a number outside its domain, such as a NaN multiplier */
    GH_ERROR_MISALIGNED_POINTER = 5,  /**< not aligned to its element */
    GH_ERROR_OVERLAP = 6,             /**< memory that is written overlaps other memory of the call */
    GH_ERROR_UNREACHABLE_POINTER = 7, /**< memory that the stream's device cannot access */
    GH_ERROR_LABEL_OUT_OF_RANGE = 8,  /**< host engine: neither in [0, vocab) nor ignore_index */
    GH_ERROR_NO_CUDA = 9,             /**< this library was built without its CUDA engine */
    GH_ERROR_NO_DEVICE = 10,          /**< no CUDA driver or no CUDA device on this machine */
    GH_ERROR_UNSUPPORTED_DEVICE = 11, /**< the device is older than compute capability 8.0 */
    GH_ERROR_CUDA = 12                /**< a CUDA call failed; gh_last_error() has CUDA's words */
};

/**
 * One line of static English text for a status. Never NULL: a value that this
 * library does not know gives "unknown status".
 */
GH_API const char *gh_status_string(gh_status status);

/**
 * The calling thread's last failure, in one line that names the argument and
 * its value: "labels[3] = 70000: not in [0, 50257) and not ignore_index
 * (-100)". Returns "" if no call of this thread has failed; a call that
 * succeeds leaves it as it was. Never NULL. The text stays valid until this
 * thread's next failing call.
 */
GH_API const char *gh_last_error(void);

/* ---- Types --------------------------------------------------------------- */

/** The element type of logits and of their gradient. */
typedef int32_t gh_dtype;

enum {
    GH_DTYPE_F32 = 0, /**< IEEE binary32 */
    GH_DTYPE_F16 = 1, /**< IEEE binary16 */
    GH_DTYPE_BF16 = 2 /**< bfloat16: binary32's upper half */
};

/**
 * Where, and in what order, the work runs. The same type as cudaStream_t.
 *
 * - A CUDA stream: on the stream's device, after the stream's earlier work. The
 *   call returns without waiting. It may be captured into a graph, it allocates
 *   nothing, and it leaves the current device as it was.
 * - NULL: the current device's default stream, as in CUDA.
 * - GH_STREAM_HOST: now, on the CPU, with pointers to host memory. The call
 *   returns when the work is done.
 *
 * Nothing is guessed from where a pointer points to: a device pointer with
 * GH_STREAM_HOST is an error, and so is a pointer that the stream's device
 * cannot access.
 */
typedef struct CUstream_st *gh_stream;

/** The stream that is the CPU: see gh_stream. */
#define GH_STREAM_HOST ((gh_stream)(intptr_t)-1)

/* ---- The short call: loss and gradient in place -------------------------- */

/**
 * Adds up the cross-entropy loss of `batch` rows and overwrites their logits
 * with the gradient of the summed loss, in one pass over memory.
 *
 * With x = logits[i], y = labels[i], and for every row i with y != ignore_index
 *
 *     lse_i         = log(sum_j exp(x_j))
 *     ce_sum       += lse_i - x_y
 *     z_sum        += lse_i^2
 *     n_valid      += 1
 *     dlogits[i][j] = exp(x_j - lse_i) * (1 + 2 * z_loss_multiplier * lse_i) - (j == y)
 *
 * so that dlogits is the gradient of `ce_sum + z_loss_multiplier * z_sum`. It is
 * not divided by anything. (z-loss: Chowdhery et al., PaLM, section 5; the
 * term that keeps the softmax normaliser near 1.) Rows with y == ignore_index
 * get a gradient of exactly 0, add nothing, and their logits are not read.
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
 * @param[in,out] logits         [batch, vocab] of dtype, row-major and
 *                               contiguous; becomes dlogits. Aligned to its
 *                               element, no more. May be NULL if batch is 0.
 * @param[in] dtype              a gh_dtype. All arithmetic is in fp32 or
 *                               better; gradients are rounded to dtype once, at
 *                               the end.
 * @param[in] labels             [batch], the class of each row, in [0, vocab)
 *                               or ignore_index. May be NULL if batch is 0.
 * @param[in] batch              rows, at least 0. 0 is a success that touches
 *                               nothing.
 * @param[in] vocab              columns, at least 1. `batch * vocab` may exceed
 *                               2^32.
 * @param[in] z_loss_multiplier  finite. 0 turns the z-loss off.
 * @param[in] ignore_index       any value, also one inside [0, vocab).
 * @param[in,out] ce_sum         one float, added to: zero it before the first
 *                               call. In nats.
 * @param[in,out] z_sum          one float, added to, not multiplied by
 *                               z_loss_multiplier. May be NULL.
 * @param[in,out] n_valid        one float, added to. May be NULL.
 * @param[in] stream             see gh_stream. All pointers are memory of its
 *                               device (or memory which that device can
 *                               access), or host memory for GH_STREAM_HOST.
 *
 * @return GH_SUCCESS, or an error with nothing written:
 * @retval GH_ERROR_NULL_POINTER         logits, labels or ce_sum is NULL
 * @retval GH_ERROR_INVALID_SIZE         batch < 0, vocab < 1, or more elements
 *                                       than the address space holds
 * @retval GH_ERROR_INVALID_DTYPE        dtype is not a gh_dtype
 * @retval GH_ERROR_INVALID_VALUE        z_loss_multiplier is NaN or infinite
 * @retval GH_ERROR_MISALIGNED_POINTER   a pointer is not aligned to its element
 * @retval GH_ERROR_OVERLAP              two arguments overlap
 * @retval GH_ERROR_UNREACHABLE_POINTER  the stream's device cannot access a
 *                                       pointer
 * @retval GH_ERROR_LABEL_OUT_OF_RANGE   GH_STREAM_HOST only
 * @retval GH_ERROR_NO_CUDA              any stream but GH_STREAM_HOST
 * @retval GH_ERROR_NO_DEVICE            likewise
 * @retval GH_ERROR_UNSUPPORTED_DEVICE   likewise
 * @retval GH_ERROR_CUDA                 likewise
 */
GH_API gh_status gh_cross_entropy_fwd_bwd(
    void *logits, gh_dtype dtype,
    const int64_t *labels,
    int64_t batch, int64_t vocab,
    float z_loss_multiplier, int64_t ignore_index,
    float *ce_sum, float *z_sum, float *n_valid,
    gh_stream stream);

/* ---- Every option -------------------------------------------------------- */

/** The integer type of labels. */
typedef int32_t gh_label_dtype;

enum {
    GH_LABEL_I64 = 0, /**< int64_t */
    GH_LABEL_I32 = 1  /**< int32_t */
};

/** What `loss` is of the rows' losses, and with it what dlogits is the gradient of. */
typedef int32_t gh_reduction;

enum {
    /** All rows' losses, divided by nothing. */
    GH_REDUCTION_SUM = 0,
    /** Divided by the number of valid rows; with class weights, by the sum of their labels' weights. */
    GH_REDUCTION_MEAN = 1,
    /** No reduced loss: see row_loss. The gradient is that of the sum, unless row_dloss says more. */
    GH_REDUCTION_NONE = 2
};

/** What becomes of the values that the summed outputs hold before the call. */
typedef int32_t gh_sums;

enum {
    GH_SUMS_ADD = 0,      /**< added to: zero them before the first call */
    GH_SUMS_OVERWRITE = 1 /**< overwritten, also by a call whose batch is 0 */
};

/** Bytes of one row in row_statistics. */
#define GH_ROW_STATISTICS_BYTES 32

/**
 * The options of gh_cross_entropy() and gh_cross_entropy_backward(). Start from
 * GH_CROSS_ENTROPY_OPTIONS_INIT, which sets `size` and every default:
 *
 *     gh_cross_entropy_options options = GH_CROSS_ENTROPY_OPTIONS_INIT;
 *     options.reduction = GH_REDUCTION_MEAN;
 *
 * The loss. A row i is ignored if y = labels[i] is ignore_index, else valid.
 * With N = vocab, e = label_smoothing, w = class_weights (all 1 if NULL), and
 *
 *     t_j       = logit_scale * logits[i][j]
 *     x_j       = softcap > 0 ? softcap * tanh(t_j / softcap) : t_j
 *     lse_i     = log(sum_j exp(x_j))
 *     p_j       = exp(x_j - lse_i)
 *
 * a valid row has
 *
 *     loss_i    = (1 - e) * w_y * (lse_i - x_y)
 *               + e / N * sum_j w_j * (lse_i - x_j)
 *               + z_loss_multiplier * lse_i^2
 *     entropy_i = lse_i - sum_j p_j * x_j
 *
 * The first two terms are those of torch.nn.functional.cross_entropy, also in
 * how smoothing and weights combine. An ignored row has a loss of 0. With
 * D = 1, or for GH_REDUCTION_MEAN the sum of w_y over the valid rows,
 *
 *     loss      = sum_i loss_i / D           (0 if D is 0)
 *     dlogits   = the derivative, with respect to logits, of
 *                 sum_i g_i * loss_i + row_dentropy_i * entropy_i
 *     g_i       = dloss * *dloss_ptr * row_dloss_i / D     (0 if D is 0)
 *
 * where what is NULL counts as 1, row_dentropy as 0. The factors are multiplied
 * in fp32, and dlogits is rounded to dtype once. (Softcap: Gemma 2, section 2.
 * z-loss: PaLM, section 5. Label smoothing: Szegedy et al. 2016, section 7.)
 *
 * Fields that are pointers are memory like the arguments: of the stream's
 * device, or of the host for GH_STREAM_HOST. An output that is NULL is not
 * computed, and costs nothing. No output may overlap anything else.
 */
typedef struct gh_cross_entropy_options {
    size_t size; /**< sizeof(gh_cross_entropy_options), as the caller was compiled */

    /* ---- Memory ---- */

    /** Elements from one row to the next, at least vocab; 0 for vocab. What lies between the rows is neither read nor
     * written. */
    int64_t logits_row_stride;
    int64_t dlogits_row_stride; /**< as logits_row_stride */
    gh_label_dtype label_dtype; /**< the type of labels' elements */
    gh_sums sums;               /**< whether the summed outputs are added to */

    /* ---- The loss ---- */

    gh_reduction reduction;     /**< sum, mean or none */
    float label_smoothing;      /**< in [0, 1] */
    float z_loss_multiplier;    /**< finite */
    float logit_scale;          /**< finite and positive; 1 is off */
    float softcap;              /**< finite and positive, or 0: off */
    float dloss;                /**< the upstream gradient: any value; 1 is off */
    int64_t ignore_index;       /**< any value; -100 by default */
    const float *class_weights; /**< [vocab], or NULL */

    /* ---- Upstream gradients ---- */

    const float *dloss_ptr;    /**< one float, read when the stream gets there; or NULL */
    const float *row_dloss;    /**< [batch], or NULL */
    const float *row_dentropy; /**< [batch], the upstream gradient of row_entropy; or NULL */

    /* ---- Outputs per row; an ignored row gets 0, and -1 as its argmax ---- */

    float *row_loss;            /**< [batch] loss_i, in nats */
    float *row_lse;             /**< [batch] lse_i */
    float *row_target_log_prob; /**< [batch] x_y - lse_i, the label's log-probability, without smoothing or weight */
    float *row_entropy;         /**< [batch] entropy_i, in nats */
    int64_t *row_argmax;        /**< [batch] the first index of the largest logit; -1 if the row's loss is NaN */
    void *row_statistics;       /**< [batch][GH_ROW_STATISTICS_BYTES], aligned to 8: for gh_cross_entropy_backward */

    /* ---- Outputs summed over rows: one float each; see `sums` ---- */

    float *loss;           /**< the reduced loss, all terms; must be NULL for GH_REDUCTION_NONE */
    float *z_loss;         /**< the part of it that is z_loss_multiplier * lse_i^2; likewise */
    float *n_valid;        /**< rows that are not ignored */
    float *n_correct;      /**< valid rows whose argmax is the label */
    float *n_out_of_range; /**< valid rows whose label is not in [0, vocab) */

    /* ---- Workspace ---- */

    /** gh_cross_entropy_workspace_size() bytes, aligned to 8; or NULL. On a CUDA stream, GH_REDUCTION_MEAN needs it, and
     * so does label_smoothing with class_weights; and with it, the outputs summed over rows are bitwise repeatable. What
     * it holds before and after a call has no meaning. Calls that share it must run one after the other. */
    void *workspace;
    size_t workspace_size; /**< in bytes */
} gh_cross_entropy_options;

/** The initialiser of gh_cross_entropy_options: its size, and every default. */
#define GH_CROSS_ENTROPY_OPTIONS_INIT                                                                                \
    {                                                                                                                \
        sizeof(gh_cross_entropy_options), 0, 0, GH_LABEL_I64, GH_SUMS_ADD, GH_REDUCTION_SUM, 0.0f, 0.0f, 1.0f, 0.0f, \
            1.0f, -100, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,    \
            NULL, 0                                                                                                  \
    }

/**
 * The loss of `batch` rows and its gradient, with the logits read once.
 *
 * Aliasing: logits and dlogits are the same or do not overlap. Nothing else
 * that is written may overlap anything. What lies between the rows counts as
 * theirs, but logits and dlogits of the same stride may lie side by side.
 *
 * Special values, labels out of range and summation are as for
 * gh_cross_entropy_fwd_bwd(). A row whose loss is NaN has NaN in every output
 * but row_argmax, and in its gradient. A softcap leaves infinite logits
 * infinite. With label_smoothing, a column of -inf gives a loss of +inf, and a
 * gradient that is finite. A term of the loss whose factor is 0 counts for
 * nothing, also where it is infinite. On the host, labels out of range are an
 * error unless n_out_of_range is given, which counts them; then the row is as
 * on a CUDA stream.
 *
 * @param[in] logits   [batch, vocab] of dtype, rows logits_row_stride apart. May
 *                     be NULL if batch is 0.
 * @param[out] dlogits [batch, vocab] of dtype, rows dlogits_row_stride apart.
 *                     May be `logits`, with the same stride: then the gradient
 *                     replaces the logits. May be NULL: then only the outputs
 *                     are computed. Rows that are ignored get a gradient of
 *                     exactly 0.
 * @param[in] dtype    as for gh_cross_entropy_fwd_bwd().
 * @param[in] labels   [batch] of label_dtype: in [0, vocab) or ignore_index. May
 *                     be NULL if batch is 0.
 * @param[in] batch    as for gh_cross_entropy_fwd_bwd().
 * @param[in] vocab    as for gh_cross_entropy_fwd_bwd().
 * @param[in] options  see gh_cross_entropy_options. NULL for the defaults.
 * @param[in] stream   as for gh_cross_entropy_fwd_bwd().
 *
 * @return GH_SUCCESS, or an error with nothing written: those of
 *     gh_cross_entropy_fwd_bwd(), and
 * @retval GH_ERROR_NULL_POINTER   dlogits and all outputs are NULL; or a
 *                                 workspace is needed and NULL
 * @retval GH_ERROR_INVALID_SIZE   a row stride is neither 0 nor at least vocab;
 *                                 the workspace, or the options' size, is too
 *                                 small; or, on a CUDA stream, row_argmax or
 *                                 n_correct is given and vocab is 2^31 or more
 * @retval GH_ERROR_INVALID_VALUE  a field of options is outside its domain, two
 *                                 of them exclude each other, or a field that
 *                                 this library does not know is not 0
 */
GH_API gh_status gh_cross_entropy(
    const void *logits, void *dlogits, gh_dtype dtype,
    const void *labels,
    int64_t batch, int64_t vocab,
    const gh_cross_entropy_options *options,
    gh_stream stream);

/**
 * The gradient alone, from statistics that an earlier call saved: dlogits as
 * gh_cross_entropy() defines it, from the same logits and labels, with upstream
 * gradients that need not have been known then. The logits are read once.
 *
 * Exactly one of row_statistics and row_lse is given. row_dentropy needs
 * row_statistics, and those of a call that had row_entropy or row_dentropy.
 *
 * @param[in] logits          as for gh_cross_entropy().
 * @param[out] dlogits        as for gh_cross_entropy(), but not NULL. It may be
 *                             `logits`.
 * @param[in] dtype           as for gh_cross_entropy_fwd_bwd().
 * @param[in] labels          as for gh_cross_entropy().
 * @param[in] batch           as for gh_cross_entropy_fwd_bwd().
 * @param[in] vocab           as for gh_cross_entropy_fwd_bwd().
 * @param[in] row_statistics  what gh_cross_entropy() wrote for the same logits,
 *                            labels, logit_scale and softcap, on the same
 *                            engine. Then dlogits is bit for bit what that call
 *                            would have given together with its outputs, for
 *                            this call's upstream gradients; on a CUDA stream,
 *                            if the rows of all logits and dlogits start alike
 *                            within lines of 128 bytes.
 * @param[in] row_lse         instead, [batch] fp32: lse_i from anywhere. One
 *                            fp32 number cannot carry a row at a large common
 *                            offset, or a nearly certain label: every p_j gets a
 *                            relative error of up to |lse_i| * 2^-24, and the
 *                            label's gradient an absolute one of as much.
 * @param[in] options         as for gh_cross_entropy(). label_smoothing,
 *                            z_loss_multiplier, class_weights, reduction and the
 *                            upstream gradients may differ from the earlier
 *                            call's. All outputs must be NULL.
 * @param[in] stream          as for gh_cross_entropy_fwd_bwd().
 *
 * @return GH_SUCCESS, or an error as for gh_cross_entropy(), with nothing
 *     written; for a violation of the two rules above,
 *     GH_ERROR_NULL_POINTER or GH_ERROR_INVALID_VALUE.
 */
GH_API gh_status gh_cross_entropy_backward(
    const void *logits, void *dlogits, gh_dtype dtype,
    const void *labels,
    int64_t batch, int64_t vocab,
    const void *row_statistics, const float *row_lse,
    const gh_cross_entropy_options *options,
    gh_stream stream);

/**
 * Multiplies a gradient by an upstream gradient that was not known when the
 * gradient was computed: `dlogits[i][j] *= *dloss_ptr`, in place. For frameworks
 * that compute dlogits together with the loss, and are handed the upstream
 * gradient in their backward pass, in device memory. If it is exactly 1, which
 * nobody has to wait to find out, nothing of dlogits is read or written, and
 * the call costs little more than a launch.
 *
 * Aliasing: dloss_ptr may not lie in dlogits, nor between its rows.
 *
 * Rounding: the element, already rounded to dtype, is multiplied once in fp32,
 * and the product is rounded to dtype: a second rounding that
 * gh_cross_entropy_backward() does not have. What was rounded to 0 stays 0.
 * Prefer gh_cross_entropy_backward() for fp16 with a mean: a gradient divided by
 * the number of rows may have underflowed before a loss scale reaches it.
 *
 * Special values follow IEEE 754: 0 * inf and anything times NaN are NaN. A
 * factor of exactly 1 leaves the bits of NaNs too; otherwise, those of a NaN
 * are not fixed. All other results are the same bits on both engines, for any
 * number of threads, and wherever a row lies.
 *
 * @param[in,out] dlogits         [batch, vocab] of dtype, rows
 *                                dlogits_row_stride apart; from any call with
 *                                dloss = 1, or any other numbers. Aligned to its
 *                                element, no more. May be NULL if batch is 0.
 * @param[in] dtype               as for gh_cross_entropy_fwd_bwd().
 * @param[in] batch               as for gh_cross_entropy_fwd_bwd().
 * @param[in] vocab               as for gh_cross_entropy_fwd_bwd().
 * @param[in] dlogits_row_stride  elements from one row to the next, at least
 *                                vocab; 0 for vocab. What lies between the rows
 *                                is neither read nor written.
 * @param[in] dloss_ptr           one float of any value, read when the stream
 *                                gets there. Never NULL.
 * @param[in] stream              as for gh_cross_entropy_fwd_bwd().
 *
 * @return GH_SUCCESS, or an error with nothing written:
 * @retval GH_ERROR_NULL_POINTER         dlogits or dloss_ptr is NULL
 * @retval GH_ERROR_INVALID_SIZE         batch < 0, vocab < 1, a row stride that
 *                                       is neither 0 nor at least vocab, or more
 *                                       elements than the address space holds
 * @retval GH_ERROR_INVALID_DTYPE        dtype is not a gh_dtype
 * @retval GH_ERROR_MISALIGNED_POINTER   a pointer is not aligned to its element
 * @retval GH_ERROR_OVERLAP              dloss_ptr lies in dlogits
 * @retval GH_ERROR_UNREACHABLE_POINTER  the stream's device cannot access a
 *                                       pointer
 * @retval GH_ERROR_NO_CUDA              any stream but GH_STREAM_HOST
 * @retval GH_ERROR_NO_DEVICE            likewise
 * @retval GH_ERROR_UNSUPPORTED_DEVICE   likewise
 * @retval GH_ERROR_CUDA                 likewise
 */
GH_API gh_status gh_scale_dlogits(
    void *dlogits, gh_dtype dtype,
    int64_t batch, int64_t vocab, int64_t dlogits_row_stride,
    const float *dloss_ptr,
    gh_stream stream);

/**
 * Bytes of workspace that suffice for any call on `stream`: about 100 KiB on a
 * large GPU, 0 for GH_STREAM_HOST. Depends only on the stream's device.
 *
 * @param[in] stream  see gh_stream.
 * @param[out] size   the number of bytes, in host memory. Never NULL.
 *
 * @return GH_SUCCESS, or an error with nothing written:
 * @retval GH_ERROR_NULL_POINTER        size is NULL
 * @retval GH_ERROR_NO_CUDA             any stream but GH_STREAM_HOST
 * @retval GH_ERROR_NO_DEVICE           likewise
 * @retval GH_ERROR_UNSUPPORTED_DEVICE  likewise
 * @retval GH_ERROR_CUDA                likewise
 */
GH_API gh_status gh_cross_entropy_workspace_size(gh_stream stream, size_t *size);

#ifdef __cplusplus
}
#endif

#endif /* GREYHOUND_GREYHOUND_H */
