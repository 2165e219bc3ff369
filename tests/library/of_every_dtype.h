// Suites whose tests run once for each dtype.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "problem.h"

namespace test {

class OfEveryDtype : public ::testing::TestWithParam<gh_dtype> {
protected:
    Random random = make_random();
    const gh_dtype dtype = GetParam();
};

inline std::string dtype_of(const ::testing::TestParamInfo<gh_dtype> &info) {
    return dtype_name(info.param);
}

}  // namespace test

#define INSTANTIATE_OF_EVERY_DTYPE(suite) \
    INSTANTIATE_TEST_SUITE_P(All, suite, ::testing::ValuesIn(::test::all_dtypes), ::test::dtype_of)
