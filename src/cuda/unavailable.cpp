// Stands in for the CUDA engine in a build without nvcc.
#include "cuda/engine.h"
#include "status.h"

namespace gh::cuda {

gh_status cross_entropy_fwd_bwd(const CrossEntropy &, gh_stream stream) {
    return fail(GH_ERROR_NO_CUDA,
                "stream = %p: a CUDA stream, but this libgreyhound was built without CUDA; "
                "use GH_STREAM_HOST, or rebuild with nvcc on the PATH",
                static_cast<void *>(stream));
}

}  // namespace gh::cuda
