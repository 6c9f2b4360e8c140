// A shared library with the same inline functions in it; only this is called from outside.
#include <distgrad/core/error.hpp>

distgrad::error_code timeout_of_the_library() { return distgrad::errc::timeout; }
