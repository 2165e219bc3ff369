/* The library as a plain C99 program sees it: sizes, values, signatures, and one call whose answer is known. */
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
    return failures != 0;
}
