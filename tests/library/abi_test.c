/* The library as a plain C99 program sees it: sizes, values, signatures, and calls whose answers are known. */
#include <greyhound/greyhound.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "failed: %s\n", what);
    failures++;
}

#define EXPECT(condition) expect((condition) != 0, #condition)

/* Assigning to exactly these types: a changed signature does not compile. */
static uint32_t (*const version)(void) = gh_version;
static const char *(*const version_string)(void) = gh_version_string;
static const char *(*const status_string)(gh_status) = gh_status_string;
static const char *(*const last_error)(void) = gh_last_error;
static gh_status (*const cross_entropy)(void *, gh_dtype, const int64_t *, int64_t, int64_t, float, int64_t, float *,
                                        float *, float *, gh_stream) = gh_cross_entropy_fwd_bwd;
static gh_status (*const with_options)(const void *, void *, gh_dtype, const void *, int64_t, int64_t,
                                       const gh_cross_entropy_options *, gh_stream) = gh_cross_entropy;
static gh_status (*const backward)(const void *, void *, gh_dtype, const void *, int64_t, int64_t, const void *,
                                   const float *, const gh_cross_entropy_options *,
                                   gh_stream) = gh_cross_entropy_backward;
static gh_status (*const scale)(void *, gh_dtype, int64_t, int64_t, int64_t, const float *,
                                gh_stream) = gh_scale_dlogits;
static gh_status (*const workspace_size)(gh_stream, size_t *) = gh_cross_entropy_workspace_size;

/* Where a field lies, and what type it has: assigning its address to a pointer of exactly that type. */
#define FIELD(offset, type, field)                                          \
    do {                                                                    \
        type *pointer = &options.field;                                     \
        EXPECT(offsetof(gh_cross_entropy_options, field) == (offset));      \
        EXPECT((const char *)pointer == (const char *)&options + (offset)); \
    } while (0)

/* The struct as it is in the first version that has it. Fields are only ever appended. */
static void check_options_layout(void) {
    gh_cross_entropy_options options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    if (sizeof(void *) != 8) return;
    EXPECT(sizeof(gh_cross_entropy_options) == 200);
    FIELD(0, size_t, size);
    FIELD(8, int64_t, logits_row_stride);
    FIELD(16, int64_t, dlogits_row_stride);
    FIELD(24, gh_label_dtype, label_dtype);
    FIELD(28, gh_sums, sums);
    FIELD(32, gh_reduction, reduction);
    FIELD(36, float, label_smoothing);
    FIELD(40, float, z_loss_multiplier);
    FIELD(44, float, logit_scale);
    FIELD(48, float, softcap);
    FIELD(52, float, dloss);
    FIELD(56, int64_t, ignore_index);
    FIELD(64, const float *, class_weights);
    FIELD(72, const float *, dloss_ptr);
    FIELD(80, const float *, row_dloss);
    FIELD(88, const float *, row_dentropy);
    FIELD(96, float *, row_loss);
    FIELD(104, float *, row_lse);
    FIELD(112, float *, row_target_log_prob);
    FIELD(120, float *, row_entropy);
    FIELD(128, int64_t *, row_argmax);
    FIELD(136, void *, row_statistics);
    FIELD(144, float *, loss);
    FIELD(152, float *, z_loss);
    FIELD(160, float *, n_valid);
    FIELD(168, float *, n_correct);
    FIELD(176, float *, n_out_of_range);
    FIELD(184, void *, workspace);
    FIELD(192, size_t, workspace_size);
}

static void check_options_defaults(void) {
    const gh_cross_entropy_options options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    EXPECT(options.size == sizeof options);
    EXPECT(options.logits_row_stride == 0 && options.dlogits_row_stride == 0);
    EXPECT(options.label_dtype == GH_LABEL_I64);
    EXPECT(options.sums == GH_SUMS_ADD);
    EXPECT(options.reduction == GH_REDUCTION_SUM);
    EXPECT(options.label_smoothing == 0.0f);
    EXPECT(options.z_loss_multiplier == 0.0f);
    EXPECT(options.logit_scale == 1.0f);
    EXPECT(options.softcap == 0.0f);
    EXPECT(options.dloss == 1.0f);
    EXPECT(options.ignore_index == -100);
    EXPECT(options.class_weights == NULL);
    EXPECT(options.dloss_ptr == NULL && options.row_dloss == NULL && options.row_dentropy == NULL);
    EXPECT(options.row_loss == NULL && options.row_lse == NULL && options.row_target_log_prob == NULL);
    EXPECT(options.row_entropy == NULL && options.row_argmax == NULL && options.row_statistics == NULL);
    EXPECT(options.loss == NULL && options.z_loss == NULL);
    EXPECT(options.n_valid == NULL && options.n_correct == NULL && options.n_out_of_range == NULL);
    EXPECT(options.workspace == NULL && options.workspace_size == 0);
}

/* Two equal classes and an ignored row, whose statistics then give the same gradient. */
static void check_options_call(void) {
    gh_cross_entropy_options options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    const float logits[4] = {3.0f, 3.0f, 1.0f, 2.0f};
    const int32_t labels[2] = {1, -7};
    const float factor = -0.5f;
    double statistics[2 * GH_ROW_STATISTICS_BYTES / sizeof(double)];
    float dlogits[4] = {9.0f, 9.0f, 9.0f, 9.0f}, again[4] = {9.0f, 9.0f, 9.0f, 9.0f}, loss = 8.0f;
    size_t size = 77;

    options.label_dtype = GH_LABEL_I32;
    options.ignore_index = -7;
    options.reduction = GH_REDUCTION_MEAN;
    options.sums = GH_SUMS_OVERWRITE;
    options.loss = &loss;
    options.row_statistics = statistics;
    EXPECT(with_options(logits, dlogits, GH_DTYPE_F32, labels, 2, 2, &options, GH_STREAM_HOST) == GH_SUCCESS);
    EXPECT(fabsf(loss - 0.69314718f) < 2e-7f);
    EXPECT(dlogits[0] == 0.5f && dlogits[1] == -0.5f && dlogits[2] == 0.0f && dlogits[3] == 0.0f);

    options.loss = NULL;
    options.row_statistics = NULL;
    EXPECT(backward(logits, again, GH_DTYPE_F32, labels, 2, 2, statistics, NULL, &options, GH_STREAM_HOST) ==
           GH_SUCCESS);
    EXPECT(memcmp(again, dlogits, sizeof dlogits) == 0);

    options.softcap = -1.0f;
    EXPECT(with_options(logits, dlogits, GH_DTYPE_F32, labels, 2, 2, &options, GH_STREAM_HOST) ==
           GH_ERROR_INVALID_VALUE);
    EXPECT(strstr(last_error(), "options.softcap = -1") != NULL);

    again[0] = 3.0f;
    EXPECT(scale(again, GH_DTYPE_F32, 1, 1, 0, &factor, GH_STREAM_HOST) == GH_SUCCESS);
    EXPECT(again[0] == -1.5f);

    EXPECT(workspace_size(GH_STREAM_HOST, &size) == GH_SUCCESS);
    EXPECT(size == 0);
}

int main(void) {
    struct CUstream_st *cuda_stream = NULL;
    gh_stream stream = cuda_stream; /* the same type as cudaStream_t */
    float logits[4] = {0.0f, 0.0f, 1.0f, 2.0f};
    const int64_t labels[2] = {1, -100};
    float ce_sum = 0.5f, z_sum = 0.0f, n_valid = 0.0f;
    const float log2 = 0.69314718f;

    EXPECT(stream == NULL);
    EXPECT(sizeof(gh_status) == 4 && (gh_status)-1 < 0);
    EXPECT(sizeof(gh_dtype) == 4 && (gh_dtype)-1 < 0);
    EXPECT(sizeof(gh_stream) == sizeof(void *));
    EXPECT((intptr_t)GH_STREAM_HOST == -1);

    EXPECT(GH_SUCCESS == 0);
    EXPECT(GH_ERROR_NULL_POINTER == 1);
    EXPECT(GH_ERROR_INVALID_SIZE == 2);
    EXPECT(GH_ERROR_INVALID_DTYPE == 3);
    EXPECT(GH_ERROR_INVALID_VALUE == 4);
    EXPECT(GH_ERROR_MISALIGNED_POINTER == 5);
    EXPECT(GH_ERROR_OVERLAP == 6);
    EXPECT(GH_ERROR_UNREACHABLE_POINTER == 7);
    EXPECT(GH_ERROR_LABEL_OUT_OF_RANGE == 8);
    EXPECT(GH_ERROR_NO_CUDA == 9);
    EXPECT(GH_ERROR_NO_DEVICE == 10);
    EXPECT(GH_ERROR_UNSUPPORTED_DEVICE == 11);
    EXPECT(GH_ERROR_CUDA == 12);
    EXPECT(GH_DTYPE_F32 == 0);
    EXPECT(GH_DTYPE_F16 == 1);
    EXPECT(GH_DTYPE_BF16 == 2);
    EXPECT(sizeof(gh_label_dtype) == 4 && (gh_label_dtype)-1 < 0);
    EXPECT(sizeof(gh_reduction) == 4 && (gh_reduction)-1 < 0);
    EXPECT(sizeof(gh_sums) == 4 && (gh_sums)-1 < 0);
    EXPECT(GH_LABEL_I64 == 0);
    EXPECT(GH_LABEL_I32 == 1);
    EXPECT(GH_REDUCTION_SUM == 0);
    EXPECT(GH_REDUCTION_MEAN == 1);
    EXPECT(GH_REDUCTION_NONE == 2);
    EXPECT(GH_SUMS_ADD == 0);
    EXPECT(GH_SUMS_OVERWRITE == 1);
    EXPECT(GH_ROW_STATISTICS_BYTES == 32);
    check_options_layout();
    check_options_defaults();

    EXPECT(version() == GH_VERSION);
    EXPECT(strlen(version_string()) >= 5);
    EXPECT(strcmp(last_error(), "") == 0);

    /* Two equal classes: loss log 2, gradient (1/2, -1/2); the second row is ignored. */
    EXPECT(cross_entropy(logits, GH_DTYPE_F32, labels, 2, 2, 0.0f, -100, &ce_sum, &z_sum, &n_valid, GH_STREAM_HOST) ==
           GH_SUCCESS);
    EXPECT(fabsf(ce_sum - 0.5f - log2) < 2e-7f);
    EXPECT(fabsf(z_sum - log2 * log2) < 2e-7f);
    EXPECT(n_valid == 1.0f);
    EXPECT(logits[0] == 0.5f && logits[1] == -0.5f);
    EXPECT(logits[2] == 0.0f && logits[3] == 0.0f);

    EXPECT(cross_entropy(logits, 7, labels, 2, 2, 0.0f, -100, &ce_sum, &z_sum, &n_valid, GH_STREAM_HOST) ==
           GH_ERROR_INVALID_DTYPE);
    EXPECT(strstr(last_error(), "dtype = 7") != NULL);
    EXPECT(strlen(status_string(GH_ERROR_INVALID_DTYPE)) > 0);
    check_options_call();
    return failures != 0;
}
