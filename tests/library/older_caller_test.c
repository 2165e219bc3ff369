/* A program that was compiled with an earlier header, whose options ended with row_lse: it goes on working, and nothing
 * behind its own struct is read. Its declarations are its own, so that no change of today's header reaches them. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct gh_cross_entropy_options {
    size_t size;
    int64_t logits_row_stride;
    int64_t dlogits_row_stride;
    int32_t label_dtype;
    int32_t sums;
    int32_t reduction;
    float label_smoothing;
    float z_loss_multiplier;
    float logit_scale;
    float softcap;
    float dloss;
    int64_t ignore_index;
    const float *class_weights;
    const float *dloss_ptr;
    const float *row_dloss;
    const float *row_dentropy;
    float *row_loss;
    float *row_lse;
} gh_cross_entropy_options;

#define GH_CROSS_ENTROPY_OPTIONS_INIT                                                                                \
    {                                                                                                                \
        sizeof(gh_cross_entropy_options), 0, 0, 0, 0, 0, 0.0f, 0.0f, 1.0f, 0.0f, 1.0f, -100, NULL, NULL, NULL, NULL, \
            NULL, NULL                                                                                               \
    }

int32_t gh_cross_entropy(const void *logits, void *dlogits, int32_t dtype, const void *labels, int64_t batch,
                         int64_t vocab, const gh_cross_entropy_options *options, void *stream);
int32_t gh_cross_entropy_backward(const void *logits, void *dlogits, int32_t dtype, const void *labels, int64_t batch,
                                  int64_t vocab, const void *row_statistics, const float *row_lse,
                                  const gh_cross_entropy_options *options, void *stream);
const char *gh_last_error(void);

static int failures;

static void expect(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "failed: %s; last error: %s\n", what, gh_last_error());
    failures++;
}

#define EXPECT(condition) expect((condition) != 0, #condition)

int main(void) {
    /* What follows the struct in the program's memory would be 7 more outputs, at addresses that no one may touch. */
    struct {
        gh_cross_entropy_options options;
        unsigned char others[256];
    } memory = {GH_CROSS_ENTROPY_OPTIONS_INIT, {0}};
    gh_cross_entropy_options *const options = &memory.options;
    void *const host = (void *)(intptr_t)-1;
    /* Two rows of two classes in rows of three: equal logits, so a loss of log 2 whatever the smoothing. */
    const float logits[6] = {1.0f, 1.0f, 77.0f, -3.0f, -3.0f, 77.0f};
    float dlogits[6] = {5.0f, 5.0f, 5.0f, 5.0f, 5.0f, 5.0f};
    const int32_t labels[2] = {1, 0};
    float row_loss[2] = {9.0f, 9.0f}, row_lse[2] = {9.0f, 9.0f};
    const float log2 = 0.69314718f;
    int i;

    memset(memory.others, 0xff, sizeof memory.others);
    options->logits_row_stride = 3;
    options->dlogits_row_stride = 3;
    options->label_dtype = 1;
    options->label_smoothing = 0.5f;
    options->dloss = 4.0f;
    options->row_loss = row_loss;
    options->row_lse = row_lse;

    EXPECT(gh_cross_entropy(logits, dlogits, 0, labels, 2, 2, options, host) == 0);
    for (i = 0; i < 2; i++) EXPECT(fabsf(row_loss[i] - log2) < 2e-7f);
    EXPECT(fabsf(row_lse[0] - (1.0f + log2)) < 4e-7f);
    EXPECT(fabsf(row_lse[1] - (-3.0f + log2)) < 4e-7f);
    /* 4 (p - 0.5 / 2 - 0.5 [j = y]): +-1, and what lies between the rows stays as it was. */
    EXPECT(dlogits[0] == 1.0f && dlogits[1] == -1.0f && dlogits[2] == 5.0f);
    EXPECT(dlogits[3] == -1.0f && dlogits[4] == 1.0f && dlogits[5] == 5.0f);

    options->row_loss = NULL;
    options->row_lse = NULL;
    memset(dlogits, 0, sizeof dlogits);
    EXPECT(gh_cross_entropy_backward(logits, dlogits, 0, labels, 2, 2, NULL, row_lse, options, host) == 0);
    for (i = 0; i < 6; i++) {
        const float expected = i % 3 == 2 ? 0.0f : (i % 3 == labels[i / 3] ? -1.0f : 1.0f);
        /* 4 p has the relative error of exp(x - lse), |lse| * 2^-24 < 2.4 * 2^-24, and a few roundings. */
        EXPECT(fabsf(dlogits[i] - expected) < 2e-6f);
    }

    for (i = 0; i < (int)sizeof memory.others; i++)
        if (memory.others[i] != 0xff) failures++;
    return failures != 0;
}
