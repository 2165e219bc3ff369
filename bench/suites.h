// The groups of benchmarks in greyhound_bench. Each registers its own; nothing is allocated before it runs.
#pragma once

#include "device_context.h"

namespace bench {

struct Settings {
    bool quick = false;  // few repetitions, for a look; not for figures that are quoted
    int repetitions(int full) const { return quick ? 3 : full; }
};

// host_suite.cpp:        "host/...", the CPU engine.
// host_option_suite.cpp: "host_options/...", its call with an option next to the plain call.
void register_host_suite(const Settings &settings);
void register_host_option_suite(const Settings &settings);
Context host_context();

#if GREYHOUND_BENCH_CUDA
// device_suite.cpp: "device/...", GPU time of a call beside its ceilings.
// issue_suite.cpp:  "issue/...", host time of a call beside that of a bare launch.
// option_suite.cpp: "options/...", GPU time of a call with an option next to the plain call's.
void register_device_suite(const Settings &settings);
void register_issue_suite(const Settings &settings);
void register_option_suite(const Settings &settings);
#endif

}  // namespace bench
