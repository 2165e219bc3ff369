// What the sweeps share: programs that time many variants of one thing on the GPU, print a table, and leave all figures
// in a JSON file.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

constexpr int sweep_launches = 15;

// Median GPU time, in seconds, of sweep_launches launches of `work`, each timed by itself after one that is not timed.
// All are put on the stream before the first is waited for, so that none waits for the host.
double median_seconds(cudaStream_t stream, const std::function<void()> &work);

// A JSON object, its members in the order in which they were added.
class Record {
public:
    Record &text(const char *name, const std::string &value);
    Record &integer(const char *name, int64_t value);
    Record &real(const char *name, double value);
    Record &flag(const char *name, bool value);
    std::string json() const { return "{" + members_ + "}"; }

private:
    Record &member(const std::string &name, const std::string &value);
    std::string members_;
};

// The file that the command line names: "--out FILE" and nothing else. Throws std::runtime_error.
std::string output_file(int argc, char **argv);

// {"context": {...}, "results": [...]}. The context is of the device and of the commit in GREYHOUND_COMMIT, and says
// with `method` how the results were measured.
void write_results(const std::string &file, const std::string &method, const std::vector<Record> &results);

}  // namespace bench
