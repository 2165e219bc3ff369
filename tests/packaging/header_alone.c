/* Compiled as C99 and as C++11: the header brings everything that it uses, and its macros are
 * constant expressions where a caller needs them to be. */
#include <greyhound/greyhound.h>

#define CHECK(name, condition) typedef char name[(condition) ? 1 : -1]

CHECK(version_is_constant, GH_VERSION == (GH_VERSION_MAJOR << 16 | GH_VERSION_MINOR << 8 | GH_VERSION_PATCH));
CHECK(status_is_32_bits_wide, sizeof(gh_status) == 4);
CHECK(dtype_is_32_bits_wide, sizeof(gh_dtype) == 4);

gh_stream host_stream(void);
gh_stream host_stream(void) {
    return GH_STREAM_HOST;
}

/* The defaults are constants, so that they initialise an object of any storage. */
extern const gh_cross_entropy_options default_options;
const gh_cross_entropy_options default_options = GH_CROSS_ENTROPY_OPTIONS_INIT;
