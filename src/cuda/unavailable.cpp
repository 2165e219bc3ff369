// Stands in for the CUDA engine in a build without nvcc.
#include "cuda/engine.h"
#include "status.h"

namespace gh::cuda {
namespace {

gh_status no_cuda(gh_stream stream) {
    return fail(GH_ERROR_NO_CUDA,
                "stream = %p: a CUDA stream, but this libgreyhound was built without CUDA; "
                "use GH_STREAM_HOST, or rebuild with nvcc on the PATH",
                static_cast<void *>(stream));
}

}  // namespace

gh_status cross_entropy(const CrossEntropy &call, gh_stream stream) {
    return call.batch == 0 && !call.overwrite_sums ? GH_SUCCESS : no_cuda(stream);
}

gh_status scale_dlogits(const ScaleDlogits &call, gh_stream stream) {
    return call.batch == 0 ? GH_SUCCESS : no_cuda(stream);
}

gh_status workspace_size(gh_stream stream, size_t &) {
    return no_cuda(stream);
}

}  // namespace gh::cuda
