#pragma once
#include <distgrad/core/exception.hpp>

namespace distgrad {

DISTGRAD_DECL ErrorReport describe(std::exception_ptr const& error, errc fallback) noexcept {
  try {
    if (!error) return {error_code(), {}};
    std::rethrow_exception(error);
  } catch (Error const& e) {
    return {e.code(), e.text().empty() ? e.what() : e.text()};
  } catch (std::exception const& e) {
    return {fallback, e.what()};
  } catch (...) {
    return {fallback, "an exception that is no std::exception"};
  }
}

}  // namespace distgrad
