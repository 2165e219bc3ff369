/* A program that knows the library only by its path, given as the argument. The header is read for
 * its types. Uniform logits have a loss of log(vocab). */
#include <greyhound/greyhound.h>

#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { vocab = 7 };

typedef gh_status cross_entropy_fn(void *, gh_dtype, const int64_t *, int64_t, int64_t, float, int64_t, float *,
                                   float *, float *, gh_stream);
typedef const char *last_error_fn(void);

/* ISO C has no cast from an object pointer to a function pointer; POSIX promises that their bytes agree. */
static int find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) fprintf(stderr, "%s\n", dlerror());
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: dlopen LIBRARY");
        return 1;
    }
    cross_entropy_fn *cross_entropy;
    last_error_fn *last_error;
    if (!find(library, "gh_cross_entropy_fwd_bwd", &cross_entropy) || !find(library, "gh_last_error", &last_error))
        return 1;

    float logits[vocab] = {0}, loss = 0;
    const int64_t label = 2;
    if (cross_entropy(logits, GH_DTYPE_F32, &label, 1, vocab, 0, -100, &loss, NULL, NULL, GH_STREAM_HOST)) {
        fprintf(stderr, "%s\n", last_error());
        return 1;
    }
    const double expected = log(vocab);
    printf("loss %.9g, log(%d) = %.9g\n", (double)loss, vocab, expected);
    /* The loss is rounded to fp32; the sum of exp(0) is exact. */
    return fabs((double)loss - expected) <= 2 * (double)FLT_EPSILON * expected ? 0 : 1;
}
