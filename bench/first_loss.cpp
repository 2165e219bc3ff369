// How long a program waits for its first loss: it computes one, prints when it had got how far, and ends.
//
//   greyhound_first_loss [cuda|host]
//
// Output, one line of JSON: seconds since the epoch at the start of main, when the inputs stood ready (on the
// GPU: with the context made), and when the loss was there; and the mean loss.
#include <cuda_runtime_api.h>
#include <greyhound/greyhound.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// The same shape as in peers/startup.py.
constexpr int64_t batch = 1024, vocab = 32000;
constexpr int64_t random_rows = 16;  // repeated: making the data should not be what takes the time

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void check(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct Inputs {
    std::vector<uint16_t> rows;
    std::vector<int64_t> labels;
};

Inputs make_inputs() {
    Inputs inputs{std::vector<uint16_t>(random_rows * vocab), std::vector<int64_t>(batch)};
    std::minstd_rand random(1);
    // bfloat16 in [0.5, 2): a random sign would change nothing here, and random mantissas are what matters.
    for (uint16_t &x : inputs.rows) x = static_cast<uint16_t>(0x3f00 + random() % 0x100);
    for (int64_t &y : inputs.labels) y = static_cast<int64_t>(random() % vocab);
    return inputs;
}

float run(void *logits, const int64_t *labels, float *sums, gh_stream stream) {
    if (gh_cross_entropy_fwd_bwd(logits, GH_DTYPE_BF16, labels, batch, vocab, 0, -100, sums, nullptr, nullptr, stream))
        throw std::runtime_error(gh_last_error());
    float sum;
    if (stream == GH_STREAM_HOST)
        sum = *sums;
    else
        check(cudaMemcpy(&sum, sums, sizeof(sum), cudaMemcpyDeviceToHost));
    return sum / static_cast<float>(batch);
}

void report(double started, double ready, double finished, float loss) {
    std::printf("{\"started\": %.6f, \"ready\": %.6f, \"first_loss\": %.6f, \"loss\": %.6f}\n", started, ready,
                finished, static_cast<double>(loss));
}

void on_host(double started) {
    const Inputs inputs = make_inputs();
    std::vector<uint16_t> logits;
    for (int64_t row = 0; row < batch; row += random_rows)
        logits.insert(logits.end(), inputs.rows.begin(), inputs.rows.end());
    const double ready = now();
    float sum = 0;
    const float loss = run(logits.data(), inputs.labels.data(), &sum, GH_STREAM_HOST);
    report(started, ready, now(), loss);
}

void on_device(double started) {
    const Inputs inputs = make_inputs();
    const size_t chunk = inputs.rows.size() * sizeof(uint16_t);
    char *logits;
    int64_t *labels;
    float *sum;
    check(cudaMalloc(reinterpret_cast<void **>(&logits), chunk * (batch / random_rows)));
    check(cudaMalloc(reinterpret_cast<void **>(&labels), batch * sizeof(int64_t)));
    check(cudaMalloc(reinterpret_cast<void **>(&sum), sizeof(float)));
    for (size_t i = 0; i < batch / random_rows; i++)
        check(cudaMemcpy(logits + i * chunk, inputs.rows.data(), chunk, cudaMemcpyHostToDevice));
    check(cudaMemcpy(labels, inputs.labels.data(), batch * sizeof(int64_t), cudaMemcpyHostToDevice));
    check(cudaMemset(sum, 0, sizeof(float)));
    check(cudaDeviceSynchronize());
    const double ready = now();
    const float loss = run(logits, labels, sum, nullptr);
    report(started, ready, now(), loss);
}

}  // namespace

int main(int argc, char **argv) {
    const double started = now();
    const std::string where = argc > 1 ? argv[1] : "cuda";
    try {
        if (where == "host")
            on_host(started);
        else
            on_device(started);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "greyhound_first_loss: %s\n", e.what());
        return 1;
    }
    return 0;
}
