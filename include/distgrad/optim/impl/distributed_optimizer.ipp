#pragma once
#include <distgrad/optim/distributed_optimizer.hpp>

namespace distgrad::detail {

DISTGRAD_DECL void rethrow_all(std::vector<std::exception_ptr> const& errors) {
  if (errors.empty()) return;
  if (errors.size() == 1) std::rethrow_exception(errors.front());
  auto text = describe(errors.front()).text;
  for (std::size_t i = 1; i < errors.size(); ++i) text += "; also " + describe(errors[i]).text;
  try {
    std::rethrow_exception(errors.front());
  } catch (RemoteError const& e) {
    throw RemoteError(e.code(), e.worker(), e.function(), e.call(), text);
  } catch (Error const& e) {
    throw Error(e.code(), text);
  }
}

}  // namespace distgrad::detail
