#pragma once
#include <atomic>

#include <distgrad/rpc/function.hpp>

namespace distgrad::detail {

/// Head of the program's list. Constant-initialised, so that functions of any translation unit
/// can be linked in during static initialisation; shared libraries loaded later add theirs.
DISTGRAD_DECL std::atomic<ProgramFunction const*>& program_functions() {
  static constinit std::atomic<ProgramFunction const*> head{nullptr};
  return head;
}

DISTGRAD_DECL ProgramFunction::ProgramFunction(FunctionEntry e)
    : entry(std::move(e)), next(program_functions().load(std::memory_order_relaxed)) {
  while (!program_functions().compare_exchange_weak(next, this)) {
  }
}

}  // namespace distgrad::detail
