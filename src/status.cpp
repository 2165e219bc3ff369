#include "status.h"

#include <cstdarg>
#include <cstdio>

namespace gh {
namespace {

// Fixed storage: reporting a failure must not itself be able to fail.
thread_local char failure_text[512] = "";

}  // namespace

gh_status fail(gh_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(failure_text, sizeof failure_text, format, arguments);
    va_end(arguments);
    return status;
}

const char *last_failure() {
    return failure_text;
}

}  // namespace gh
