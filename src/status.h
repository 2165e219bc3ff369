// How every layer reports a failure: the status travels by return value, the sentence for
// gh_last_error() is written where the failure is found.
#pragma once

#include "greyhound/greyhound.h"

namespace gh {

// Stores the printf-style text as this thread's last failure and returns `status`.
[[gnu::format(printf, 2, 3)]] gh_status fail(gh_status status, const char *format, ...);

// This thread's last failure, "" if there was none.
const char *last_failure();

}  // namespace gh
