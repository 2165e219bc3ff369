/* A program that links the library: uniform logits, whose loss is log(vocab) for every row. */
#include <greyhound/greyhound.h>

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { batch = 3, vocab = 5 };

int main(void) {
    float logits[batch * vocab] = {0};
    const int64_t labels[batch] = {0, 4, -100};
    float ce_sum = 0, n_valid = 0;
    if ((gh_version() ^ GH_VERSION) >> 8 != 0) {
        fprintf(stderr, "header %#x, library %#x\n", (unsigned)GH_VERSION, (unsigned)gh_version());
        return 1;
    }
    if (gh_cross_entropy_fwd_bwd(logits, GH_DTYPE_F32, labels, batch, vocab, 0, -100, &ce_sum, NULL, &n_valid,
                                 GH_STREAM_HOST) != GH_SUCCESS) {
        fprintf(stderr, "%s\n", gh_last_error());
        return 1;
    }
    const double loss = (double)ce_sum / (double)n_valid, expected = log(vocab);
    printf("libgreyhound %s: loss %.9g, log(%d) = %.9g\n", gh_version_string(), loss, vocab, expected);
    /* Each row's loss and their sum are rounded to fp32; the sum of exp(0) is exact. */
    return n_valid == 2 && fabs(loss - expected) <= 2 * (double)FLT_EPSILON * expected ? 0 : 1;
}
