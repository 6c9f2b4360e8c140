#pragma once
// What a failed pass says, for tests to compare.

#include <string>

#include <distgrad/distgrad.hpp>

namespace rig {

using distgrad::BackwardOptions;
using distgrad::Error;
using distgrad::RemoteError;

struct Report {
  int code = 0;
  std::string worker, node, text;
};
/// What backward throws; code 0 if it does not.
inline Report report_of(distgrad::Context& ctx, at::Tensor const& root,
                        BackwardOptions const& options = {}) {
  try {
    ctx.backward({root}, options);
  } catch (RemoteError const& e) {
    return {e.code().value(), e.worker(), e.function(), e.remote_text()};
  } catch (Error const& e) {
    return {e.code().value(), {}, {}, e.text()};
  }
  return {};
}

inline bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace rig
