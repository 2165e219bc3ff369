// What a result was measured with: names and values for its file.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bench {

using Context = std::vector<std::pair<std::string, std::string>>;

bool have_device();
Context device_context();  // of the current device

}  // namespace bench
