#include "cpu/totals.h"

namespace gh::cpu {

void write_sums(const CrossEntropy &call, const Totals &totals, double divisor) {
    const auto write = [&](float *sum, double value) {
        if (sum == nullptr) return;
        *sum = static_cast<float>(call.overwrite_sums ? value : static_cast<double>(*sum) + value);
    };
    const auto reduced = [&](double value) { return divisor == 0 ? 0 : value / divisor; };
    const double z_in_loss = call.z_in_loss(), z_in_z_loss = call.z_in_z_loss();
    write(call.loss, reduced(totals.loss + z_in_loss * totals.lse_squared));
    write(call.z_loss, reduced(z_in_z_loss * totals.lse_squared));
    write(call.n_valid, static_cast<double>(totals.n_valid));
    write(call.n_correct, static_cast<double>(totals.n_correct));
    write(call.n_out_of_range, static_cast<double>(totals.n_out_of_range));
}

}  // namespace gh::cpu
