/*
 * Trains a byte-level bigram language model with libgreyhound.
 *
 *   bigram [--device cpu|cuda] [--steps N] [TEXT]
 *
 * The model is a table of logits, one row for each byte, which predicts the
 * byte that follows. Its best possible loss on a text is known: the text's
 * conditional entropy, found by counting pairs of bytes. So the program can say
 * whether the training was right: it exits with 1 if the two differ by more
 * than 1%.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_memory.h"
#include "greyhound/greyhound.h"

#ifndef GH_EXAMPLE_TEXT
#define GH_EXAMPLE_TEXT "docs/examples/greyhounds.txt"
#endif

enum { VOCAB = 256, BATCH = 1024, TABLE = VOCAB * VOCAB };

/* No byte is -1, so no row is ignored. */
static const int64_t IGNORE_INDEX = -1;

/* ---- Text ---------------------------------------------------------------- */

/* text[i] -> text[i + 1] is an example, for i in [0, pairs). */
typedef struct {
    unsigned char *bytes;
    int64_t pairs;
} text;

static int read_text(const char *path, text *out) {
    size_t length = 0, capacity = 1 << 16;
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 0;
    }
    out->bytes = malloc(capacity);
    while (out->bytes) {
        length += fread(out->bytes + length, 1, capacity - length, file);
        if (length < capacity) break;
        capacity *= 2;
        unsigned char *larger = realloc(out->bytes, capacity);
        if (!larger) free(out->bytes);
        out->bytes = larger;
    }
    const int complete = out->bytes && !ferror(file);
    fclose(file);
    if (!complete)
        fprintf(stderr, "bigram: %s: cannot be read\n", path);
    else if (length < 2)
        fprintf(stderr, "bigram: %s: a text needs at least two bytes\n", path);
    out->pairs = (int64_t)length - 1;
    return complete && length >= 2;
}

/* The smallest mean loss that any table can have: the entropy of a byte, given the one before it, in nats. */
static double conditional_entropy(const text *t) {
    static int64_t counts[VOCAB][VOCAB];
    double sum = 0;
    for (int64_t i = 0; i < t->pairs; i++) counts[t->bytes[i]][t->bytes[i + 1]]++;
    for (int previous = 0; previous < VOCAB; previous++) {
        int64_t total = 0;
        for (int next = 0; next < VOCAB; next++) total += counts[previous][next];
        for (int next = 0; next < VOCAB; next++) {
            const double count = (double)counts[previous][next];
            if (count > 0) sum -= count * log(count / (double)total);
        }
    }
    return sum / (double)t->pairs;
}

/* ---- Loss and gradient --------------------------------------------------- */

/* A batch of examples on the host, and the device's copy that the library works on. */
typedef struct {
    const device_memory *device;
    unsigned char previous[BATCH]; /* which row of the table each example uses */
    int64_t labels[BATCH];
    float *logits; /* [BATCH, VOCAB] */
    void *device_labels, *device_logits, *device_ce_sum;
} batch;

static int open_batch(batch *b, const device_memory *device) {
    b->device = device;
    b->logits = malloc(sizeof(float) * BATCH * VOCAB);
    b->device_labels = device->allocate(sizeof b->labels);
    b->device_logits = device->allocate(sizeof(float) * BATCH * VOCAB);
    b->device_ce_sum = device->allocate(sizeof(float));
    if (b->logits && b->device_labels && b->device_logits && b->device_ce_sum) return 1;
    fprintf(stderr, "bigram: out of memory\n");
    return 0;
}

static void close_batch(batch *b) {
    free(b->logits);
    b->device->release(b->device_labels);
    b->device->release(b->device_logits);
    b->device->release(b->device_ce_sum);
}

static void set_example(batch *b, int64_t row, const text *t, int64_t position) {
    b->previous[row] = t->bytes[position];
    b->labels[row] = t->bytes[position + 1];
}

/* The summed loss of the batch's first `rows` examples; b->logits becomes its gradient. */
static int loss_and_gradient(batch *b, const float *table, int64_t rows, float *loss) {
    const device_memory *device = b->device;
    const size_t row_bytes = sizeof(float) * VOCAB, bytes = row_bytes * (size_t)rows;

    for (int64_t i = 0; i < rows; i++) memcpy(b->logits + i * VOCAB, table + (size_t)b->previous[i] * VOCAB, row_bytes);

    *loss = 0; /* the library adds to it */
    if (!device->copy_in(b->device_logits, b->logits, bytes) ||
        !device->copy_in(b->device_labels, b->labels, sizeof(int64_t) * (size_t)rows) ||
        !device->copy_in(b->device_ce_sum, loss, sizeof *loss))
        return 0;

    const gh_status status = gh_cross_entropy_fwd_bwd(b->device_logits, GH_DTYPE_F32, b->device_labels, rows, VOCAB,
                                                      0.0f, IGNORE_INDEX, b->device_ce_sum, NULL, NULL, device->stream);
    if (status != GH_SUCCESS) {
        fprintf(stderr, "bigram: %s: %s\n", gh_status_string(status), gh_last_error());
        return 0;
    }
    return device->copy_out(b->logits, b->device_logits, bytes) &&
           device->copy_out(loss, b->device_ce_sum, sizeof *loss);
}

/* The mean loss over the whole text. */
static int evaluate(batch *b, const float *table, const text *t, double *loss) {
    *loss = 0; /* in double, because a long text's sum outgrows a float's 24 bits */
    for (int64_t start = 0; start < t->pairs; start += BATCH) {
        const int64_t rows = t->pairs - start < BATCH ? t->pairs - start : BATCH;
        float sum;
        for (int64_t row = 0; row < rows; row++) set_example(b, row, t, start + row);
        if (!loss_and_gradient(b, table, rows, &sum)) return 0;
        *loss += sum;
    }
    *loss /= (double)t->pairs;
    return 1;
}

/* ---- Training ------------------------------------------------------------ */

/* Xorshift with a fixed start, so that every run sees the same batches. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The parameters and Adam's running means (Kingma and Ba, 2015). */
typedef struct {
    float table[TABLE], gradient[TABLE], mean[TABLE], square[TABLE];
} model;

static void adam_step(model *m, long step, float rate) {
    const float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
    const float correction1 = 1 - powf(beta1, (float)step), correction2 = 1 - powf(beta2, (float)step);
    for (int i = 0; i < TABLE; i++) {
        const float g = m->gradient[i];
        m->mean[i] = beta1 * m->mean[i] + (1 - beta1) * g;
        m->square[i] = beta2 * m->square[i] + (1 - beta2) * g * g;
        m->table[i] -= rate * (m->mean[i] / correction1) / (sqrtf(m->square[i] / correction2) + epsilon);
    }
}

static int train(model *m, batch *b, const text *t, long steps) {
    const float first_rate = 0.2f;
    uint64_t random = 0x9e3779b97f4a7c15;
    double sum = 0;
    long since = 0;

    for (long step = 1; step <= steps; step++) {
        float loss;
        for (int64_t row = 0; row < BATCH; row++)
            set_example(b, row, t, (int64_t)(next_random(&random) % (uint64_t)t->pairs));
        if (!loss_and_gradient(b, m->table, BATCH, &loss)) return 0;

        memset(m->gradient, 0, sizeof m->gradient);
        for (int64_t row = 0; row < BATCH; row++) {
            float *into = m->gradient + (size_t)b->previous[row] * VOCAB;
            const float *from = b->logits + row * VOCAB;
            for (int j = 0; j < VOCAB; j++) into[j] += from[j] / BATCH;
        }
        /* Falling linearly to zero, so that the noise of small batches averages out. */
        adam_step(m, step, first_rate * (float)(steps - step + 1) / (float)steps);

        sum += loss / BATCH;
        since++;
        if (step * 10 / steps != (step - 1) * 10 / steps) {
            printf("step %*ld of %ld   loss %.4f\n", 6, step, steps, sum / (double)since);
            fflush(stdout);
            sum = 0;
            since = 0;
        }
    }
    return 1;
}

/* ---- The program --------------------------------------------------------- */

typedef struct {
    const char *device, *path;
    long steps;
} options;

static int parse(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            o->device = argv[++i];
        } else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
            char *end;
            o->steps = strtol(argv[++i], &end, 10);
            if (*end || o->steps < 1 || o->steps > 100000000) return 0;
        } else if (argv[i][0] != '-') {
            o->path = argv[i];
        } else {
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    static model m; /* all zero: every byte is equally likely */
    static batch b;
    options o = {"cpu", GH_EXAMPLE_TEXT, 1000};
    text t;
    double loss;

    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: %s [--device cpu|cuda] [--steps N] [TEXT]\n", argv[0]);
        return 2;
    }
    const device_memory *device = open_device_memory(o.device);
    if (!device || !read_text(o.path, &t)) return 1;
    const double optimum = conditional_entropy(&t);

    printf("libgreyhound %s on %s: %lld pairs of bytes from %s\n", gh_version_string(), o.device, (long long)t.pairs,
           o.path);
    if (!open_batch(&b, device) || !train(&m, &b, &t, o.steps) || !evaluate(&b, m.table, &t, &loss)) return 1;

    const double difference = loss - optimum;
    const int close = fabs(difference) <= 0.01 * optimum;
    printf("loss on the whole text     %.5f nats per byte\n", loss);
    printf("optimum, found by counting %.5f nats per byte\n", optimum);
    printf("difference                 %+.5f, %s\n", difference,
           close ? "within 1%" : "MORE THAN 1% (a long or varied text may need more --steps)");
    close_batch(&b);
    free(t.bytes);
    return close ? 0 : 1;
}
