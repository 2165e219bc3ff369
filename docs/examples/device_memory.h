/*
 * Memory that libgreyhound's calls can use: on the host for --device cpu, on
 * the GPU for --device cuda. It keeps bigram.c free of CUDA.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_EXAMPLE_DEVICE_MEMORY_H
#define GH_EXAMPLE_DEVICE_MEMORY_H

#include <stddef.h>

#include "greyhound/greyhound.h"

typedef struct {
    gh_stream stream;                                              /* for the calls that use this memory */
    void *(*allocate)(size_t bytes);                               /* NULL if it fails */
    int (*copy_in)(void *memory, const void *host, size_t bytes);  /* these two return 0 if they fail */
    int (*copy_out)(void *host, const void *memory, size_t bytes); /* waits for the stream's work */
    void (*release)(void *memory);                                 /* NULL is allowed */
} device_memory;

/* The memory of "cpu" or "cuda"; NULL if there is none, with a line on stderr that says why. */
const device_memory *open_device_memory(const char *device);

#endif
