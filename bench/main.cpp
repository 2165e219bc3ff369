// greyhound_bench: what a call costs, through the public C interface.
//
// All of Google Benchmark's flags work. Further ones:
//   --quick   three repetitions of everything, to see that it works
//
// Every time is one call's. Printed are medians over repetitions; --benchmark_out gets the other statistics too.
#include <benchmark/benchmark.h>
#include <greyhound/greyhound.h>

#include <cstring>
#include <iostream>

#include "suites.h"

namespace {

// Mean and spread go to the file; a reader of the console compares medians.
class MedianReporter : public benchmark::ConsoleReporter {
public:
    void ReportRuns(const std::vector<Run> &runs) override {
        std::vector<Run> medians;
        for (const Run &run : runs)
            if (run.error_occurred || run.run_type == Run::RT_Iteration || run.aggregate_name == "median")
                medians.push_back(run);
        benchmark::ConsoleReporter::ReportRuns(medians);
    }
};

bool take_flag(int &argc, char **argv, const char *flag) {
    for (int i = 1; i < argc; i++)
        if (std::strcmp(argv[i], flag) == 0) {
            std::memmove(&argv[i], &argv[i + 1], sizeof(*argv) * static_cast<size_t>(argc - i));
            argc--;
            return true;
        }
    return false;
}

void add_context(const bench::Context &context) {
    for (const auto &[key, value] : context) benchmark::AddCustomContext(key, value);
}

}  // namespace

int main(int argc, char **argv) {
    bench::Settings settings;
    settings.quick = take_flag(argc, argv, "--quick");
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;

    add_context({{"library_version", gh_version_string()}, {"quick", settings.quick ? "true" : "false"}});
    add_context(bench::host_context());
#if GREYHOUND_BENCH_CUDA
    if (bench::have_device()) {
        add_context(bench::device_context());
        bench::register_device_suite(settings);
        bench::register_issue_suite(settings);
        bench::register_option_suite(settings);
    } else {
        std::cerr << "greyhound_bench: no CUDA device; host benchmarks only\n";
    }
#endif
    bench::register_host_suite(settings);
    bench::register_host_option_suite(settings);

    MedianReporter reporter;
    const size_t run = benchmark::RunSpecifiedBenchmarks(&reporter);
    benchmark::Shutdown();
    return run > 0 ? 0 : 1;
}
