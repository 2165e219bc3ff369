// The memory that a call names, one entry for each pointer that is given: the one list that every check of memory as
// such goes through.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cross_entropy.h"
#include "scale_dlogits.h"

namespace gh {

enum class Role { logits, gradient, input, output, workspace };

struct Argument {
    const char *name;  // as the caller knows it
    const void *pointer;
    uint64_t bytes;    // from the first to the last of it; 0 if there are no rows
    size_t alignment;  // a power of two
    Role role;

    uintptr_t begin() const { return reinterpret_cast<uintptr_t>(pointer); }
    uintptr_t end() const { return begin() + static_cast<uintptr_t>(bytes); }
    bool written() const { return role != Role::logits && role != Role::input; }
};

// Logits that the gradient replaces are one entry, the gradient's. The call's sizes and dtypes must be valid.
class Arguments {
public:
    explicit Arguments(const CrossEntropy &call);
    explicit Arguments(const ScaleDlogits &call);

    const Argument *begin() const { return arguments_; }
    const Argument *end() const { return arguments_ + count_; }

    // The first with this role, or null.
    const Argument *find(Role role) const;

private:
    void add(const char *name, const void *pointer, uint64_t bytes, size_t alignment, Role role);

    Argument arguments_[21];  // as many as there are pointers
    int count_ = 0;
};

}  // namespace gh
