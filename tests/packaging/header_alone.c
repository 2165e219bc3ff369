/* Compiled as C99 and as C++11: the header brings everything that it uses, and macros have the
 * values that callers see at run time. */
#include <greyhound/greyhound.h>

typedef char version_is_comparable[GH_VERSION == ((GH_VERSION_MAJOR << 16) | (GH_VERSION_MINOR << 8) | GH_VERSION_PATCH)
                                       ? 1
                                       : -1];
typedef char status_is_32_bit[sizeof(gh_status) == 4 ? 1 : -1];
typedef char dtype_is_32_bit[sizeof(gh_dtype) == 4 ? 1 : -1];

gh_stream host_stream(void);
gh_stream host_stream(void) {
    return GH_STREAM_HOST;
}
