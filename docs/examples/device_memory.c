/* SPDX-License-Identifier: Apache-2.0 */
#include "device_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int host_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return 1;
}

static const device_memory host_memory = {GH_STREAM_HOST, malloc, host_copy, host_copy, free};

#ifdef GH_EXAMPLE_WITH_CUDA

#include <cuda_runtime_api.h>

static int succeeded(cudaError_t error, const char *call) {
    if (error != cudaSuccess) fprintf(stderr, "bigram: %s: %s\n", call, cudaGetErrorString(error));
    return error == cudaSuccess;
}

static void *cuda_allocate(size_t bytes) {
    void *memory = NULL;
    return succeeded(cudaMalloc(&memory, bytes), "cudaMalloc") ? memory : NULL;
}

/* Both copies use the default stream, like the loss, so they come before and after it. */
static int cuda_copy_in(void *memory, const void *host, size_t bytes) {
    return succeeded(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}

static int cuda_copy_out(void *host, const void *memory, size_t bytes) {
    return succeeded(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
}

static void cuda_release(void *memory) {
    succeeded(cudaFree(memory), "cudaFree");
}

static const device_memory *open_cuda_memory(void) {
    static const device_memory cuda_memory = {NULL, cuda_allocate, cuda_copy_in, cuda_copy_out, cuda_release};
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver || (error == cudaSuccess && devices == 0)) {
        fprintf(stderr, "bigram: skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
    } else if (succeeded(error, "cudaGetDeviceCount")) {
        return &cuda_memory;
    }
    return NULL;
}

#else

static const device_memory *open_cuda_memory(void) {
    fprintf(stderr, "bigram: --device cuda: this bigram was built without CUDA; nvcc 12.8 or newer is needed\n");
    return NULL;
}

#endif

const device_memory *open_device_memory(const char *device) {
    if (strcmp(device, "cpu") == 0) return &host_memory;
    if (strcmp(device, "cuda") == 0) return open_cuda_memory();
    fprintf(stderr, "bigram: --device %s: not cpu or cuda\n", device);
    return NULL;
}
