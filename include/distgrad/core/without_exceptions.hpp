#pragma once
#include <distgrad/config.hpp>

#if defined(DISTGRAD_WITHOUT_EXCEPTIONS)
#include <cstdio>
#include <cstdlib>

#include <boost/throw_exception.hpp>

// Boost asks a program without exceptions to say what happens instead; a definition of the
// program's own, which is not weak, wins over this one.
namespace boost {

[[gnu::weak]] void throw_exception(std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  std::abort();
}
[[gnu::weak]] void throw_exception(std::exception const& error, source_location const&) {
  throw_exception(error);
}

}  // namespace boost
#endif
