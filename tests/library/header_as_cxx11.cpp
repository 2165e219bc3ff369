// The public header alone, as strict C++11: compiling is the test.
#include <greyhound/greyhound.h>

#include <type_traits>

static_assert(std::is_same<gh_status, int32_t>::value && std::is_same<gh_dtype, int32_t>::value, "32 bits, signed");
static_assert(std::is_same<decltype(gh_cross_entropy_fwd_bwd),
                           gh_status(void *, gh_dtype, const int64_t *, int64_t, int64_t, float, int64_t, float *,
                                     float *, float *, gh_stream)>::value,
              "the call's signature");
static_assert(
    std::is_same<decltype(gh_cross_entropy), gh_status(const void *, void *, gh_dtype, const void *, int64_t, int64_t,
                                                       const gh_cross_entropy_options *, gh_stream)>::value,
    "the signature with options");
static_assert(std::is_standard_layout<gh_cross_entropy_options>::value &&
                  std::is_trivially_copyable<gh_cross_entropy_options>::value,
              "a struct of C");

gh_cross_entropy_options default_options();
gh_cross_entropy_options default_options() {
    constexpr gh_cross_entropy_options constant = GH_CROSS_ENTROPY_OPTIONS_INIT;
    static_assert(constant.size == sizeof constant && constant.logit_scale == 1 && constant.dloss == 1 &&
                      constant.ignore_index == -100 && constant.workspace == nullptr && constant.workspace_size == 0,
                  "the defaults");
    gh_cross_entropy_options options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    options.reduction = GH_REDUCTION_MEAN;
    return options;
}
