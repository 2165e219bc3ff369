// What is exact is the same with every instruction set that this processor has.
#include <gtest/gtest.h>

#include "cpu/scale.h"
#include "scale_call.h"

namespace test {
namespace {

using gh::cpu::Isa;

TEST(InstructionSets, ScaleAlike) {
    Random random = make_random();
    for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        if (!gh::cpu::available(isa)) continue;
        SCOPED_TRACE(static_cast<int>(isa));
        for (gh_dtype dtype : all_dtypes)
            for (float factor : factors(random))
                for (int64_t vocab : {1, 77, 20000}) {
                    const ScaleProblem problem = random_scale_problem(random, dtype, 3, vocab, factor, 1);
                    const PlacedScale placed(problem);
                    gh::cpu::scale_dlogits(
                        {placed.dlogits(), dtype, problem.batch, vocab, problem.stride(), placed.dloss_ptr()}, isa);
                    ASSERT_TRUE(check_scaled(problem, placed.fetch()));
                }
    }
}

}  // namespace
}  // namespace test
