#pragma once
#include <utility>

#include <boost/system/result.hpp>

#include <distgrad/core/error.hpp>

namespace distgrad {

/// A value, or the error that there is instead: `if (result) use(*result); else
/// log(result.error())`. `value()` throws the error.
template <class T>
using Result = boost::system::result<T, ErrorReport>;

/// What `Result::value` does with an error; found by its name.
[[noreturn]] inline void throw_exception_from_error(ErrorReport const& error,
                                                    boost::source_location const&) {
  throw_error(error.code, error.text);
}

}  // namespace distgrad
