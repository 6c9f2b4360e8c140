#pragma once
#include <cstdint>

namespace distgrad {

/// What stands behind the values of a call or answer, about autograd.
enum class Extension : std::uint8_t {
  plain = 0,      ///< No context.
  context = 1,    ///< The id of a context; nothing to differentiate.
  recorded = 2,   ///< The id of a context and the message's id: gradients will come back.
  constants = 3,  ///< In a context, an answer with nothing to differentiate.
};

}  // namespace distgrad
