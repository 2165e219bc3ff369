// Runs a test program on one engine: --engine=host (the default) or --engine=cuda.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "engine.h"

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    const char *name = "host";
    for (int i = 1; i < argc; i++) {
        if (std::strncmp(argv[i], "--engine=", 9) != 0) {
            std::fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[i]);
            return 2;
        }
        name = argv[i] + 9;
    }
    if (std::strcmp(name, "host") == 0) {
        test::set_engine(test::make_host_engine());
#ifdef GREYHOUND_TEST_CUDA
    } else if (std::strcmp(name, "cuda") == 0) {
        if (!test::has_cuda_device()) {
            std::printf("skipped: no CUDA device\n");
            return 0;
        }
        test::set_engine(test::make_cuda_engine());
#endif
    } else {
        std::fprintf(stderr, "%s: this build has no engine named %s\n", argv[0], name);
        return 2;
    }
    std::printf("engine %s, GREYHOUND_TEST_SEED=%" PRIu64 "\n", name, test::run_seed());
    const int result = RUN_ALL_TESTS();
    test::set_engine(nullptr);  // before the CUDA runtime's own static objects go
    return result;
}
