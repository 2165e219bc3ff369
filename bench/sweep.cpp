#include "sweep.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <stdexcept>

#include "cuda_support.h"
#include "device_context.h"

namespace bench {
namespace {

std::string quoted(const std::string &text) {
    std::string result = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + '"';
}

std::string now() {
    const std::time_t time = std::time(nullptr);
    char text[sizeof("2000-01-01T00:00:00+00:00")];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S+00:00", std::gmtime(&time));
    return text;
}

}  // namespace

double median_seconds(cudaStream_t stream, const std::function<void()> &work) {
    std::vector<Timer> timers(sweep_launches);
    work();
    for (Timer &timer : timers) {
        timer.start(stream);
        work();
        timer.stop(stream);
    }
    std::vector<double> seconds;
    for (Timer &timer : timers) seconds.push_back(timer.seconds());
    std::nth_element(seconds.begin(), seconds.begin() + sweep_launches / 2, seconds.end());
    return seconds[sweep_launches / 2];
}

Record &Record::text(const char *name, const std::string &value) {
    return member(name, quoted(value));
}

Record &Record::integer(const char *name, int64_t value) {
    return member(name, std::to_string(value));
}

Record &Record::real(const char *name, double value) {
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.6g", value);
    return member(name, digits);
}

Record &Record::flag(const char *name, bool value) {
    return member(name, value ? "true" : "false");
}

Record &Record::member(const std::string &name, const std::string &value) {
    if (!members_.empty()) members_ += ", ";
    members_ += quoted(name) + ": " + value;
    return *this;
}

std::string output_file(int argc, char **argv) {
    if (argc != 3 || std::string(argv[1]) != "--out") throw std::runtime_error("usage: --out FILE");
    return argv[2];
}

void write_results(const std::string &file, const std::string &method, const std::vector<Record> &results) {
    Record context;
    const char *const commit = std::getenv("GREYHOUND_COMMIT");
    context.text("date", now()).text("commit", commit ? commit : "unknown").text("method", method);
    for (const auto &[name, value] : device_context()) context.text(name.c_str(), value);

    std::ofstream out(file);
    out << "{\n\"context\": " << context.json() << ",\n\"results\": [\n";
    for (size_t i = 0; i < results.size(); i++) out << results[i].json() << (i + 1 < results.size() ? ",\n" : "\n");
    out << "]\n}\n";
    out.close();
    if (!out) throw std::runtime_error("cannot write " + file);
}

}  // namespace bench
